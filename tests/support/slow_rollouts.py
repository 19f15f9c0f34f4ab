"""Fake generation that misbehaves for single prompts, and what a run's dumped rollouts say."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rl_core.contracts.rollout import FinishReason, RolloutOutput, RolloutRequest
from rl_testing.fakes.serving import InFlight
from rl_testing.fakes.sliced_rollout import SlicedRollout


def misbehave(monkeypatch: pytest.MonkeyPatch, **rows: int) -> None:
    """Let the fake engine fail for prompts of a draw: ``hangs``, ``raises``, ``malformed`` name one each."""
    generate = SlicedRollout.generate

    async def generated(self: SlicedRollout, request: RolloutRequest) -> RolloutOutput:
        row = int(request.request_id.split("-")[1])
        if row == rows.get("hangs"):
            await asyncio.sleep(3600)
        if row == rows.get("raises"):
            msg = "the environment broke"
            raise RuntimeError(msg)
        output = await generate(self, request)
        return replace(output, log_probs=(0.0,)) if row == rows.get("malformed") else output

    monkeypatch.setattr(SlicedRollout, "generate", generated)


def hold_until_cut(monkeypatch: pytest.MonkeyPatch, *, row: int, after: int) -> None:
    """Let the responses to one prompt of the first draw stand still behind ``after`` tokens until they were cut once.

    The batch that waits for the others so always finds something to cut, however fast the machine is.
    """
    advance = SlicedRollout.advance

    def advanced(self: SlicedRollout, item: InFlight) -> FinishReason | None:
        is_held = item.request.request_id.startswith(f"{0:07d}-{row:06d}-") and not item.request.response_ids
        return None if is_held and len(item.tokens) >= after else advance(self, item)

    monkeypatch.setattr(SlicedRollout, "advance", advanced)


def dumped(folder: Path) -> list[tuple[str, str]]:
    """(uid, response) of every row that was trained, in order, from ``trainer.rollout_data_dir``."""
    files = sorted(folder.glob("*.jsonl"), key=lambda path: int(path.stem))
    records: list[dict[str, Any]] = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    return [(record["uid"], record["output"]) for record in records]
