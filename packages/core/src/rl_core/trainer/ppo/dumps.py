"""Rollouts as JSON lines, one file a step: what was asked, what came, what it was worth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_core.trainer.json_lines import unused_name
from rl_core.trainer.json_text import to_json

if TYPE_CHECKING:
    from rl_dataproto import DataProto

    from rl_core.contracts.reward import RewardResult


def dump_rollouts(
    folder: str | Path, step: int, batch: DataProto, results: Sequence[RewardResult], tokenizer: Any
) -> Path:
    """Write ``<folder>/<step>.jsonl``, whole or not at all.

    Args:
        folder: made if need be.
        step: global step.
        batch: jagged ``prompts`` and ``responses``, object ``uid`` and ``reward_model``.
        results: one for each row.
        tokenizer: decodes tokens.
    """
    target = Path(folder).expanduser() / f"{step}.jsonl"
    target.parent.mkdir(parents=True, exist_ok=True)
    write_json_lines(target, rollout_records(step, batch, results, tokenizer))
    return target


def write_json_lines(target: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write one line a record, the file whole or not at all."""
    partial = unused_name(target)
    try:
        with partial.open("x", encoding="utf-8") as file:
            for record in records:
                file.write(to_json(record) + "\n")
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def rollout_records(
    step: int | None, batch: DataProto, results: Sequence[RewardResult], tokenizer: Any
) -> list[dict[str, Any]]:
    """One record a row: ``input``, ``output``, ``gts``, ``score`` (null if missing), ``step``, ``uid``, and the extras."""
    columns = batch.non_tensor_batch
    prompts, responses = batch.batch["prompts"].unbind(), batch.batch["responses"].unbind()
    return [
        {
            "input": tokenizer.decode(prompts[row].tolist()),
            "output": tokenizer.decode(responses[row].tolist(), skip_special_tokens=True),
            "gts": (columns["reward_model"][row] or {}).get("ground_truth"),
            "score": result.score,
            "step": step,
            "uid": columns["uid"][row],
            "data_source": columns["data_source"][row],
            "finish_reason": columns["finish_reason"][row],
            "error": result.error,
        }
        | dict(result.extra)
        for row, result in enumerate(results)
    ]
