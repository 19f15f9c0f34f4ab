"""Reward functions that need no data set: one that the tiny model can learn, and one of every other kind."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any


def count_letter(
    *, data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any] | None = None
) -> float:
    """Share of the letter ``ground_truth`` (``a`` if there is none) in the response, from 0 to 1; 0 without a response.

    Every token counts by itself, so a model without any knowledge learns it in a few steps.
    """
    letter = str(ground_truth or "a")
    return solution_str.count(letter) / len(solution_str) if solution_str else 0.0


def exact_match(
    *, data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """1 for a response that is ``ground_truth`` apart from white space, otherwise 0; logs what was answered."""
    answer = solution_str.strip()
    return {"score": float(answer == str(ground_truth).strip()), "pred": answer, "length": len(solution_str)}


async def brevity(
    *, data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any] | None = None
) -> float:
    """A coroutine, as a remote judge is: 1 for no response, falling towards 0 with its length."""
    await asyncio.sleep(0)
    return 1.0 / (1.0 + len(solution_str))


def abstain(
    *, data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any] | None = None
) -> float:
    """Has no opinion on any response: every reward is missing.

    Raises:
        ValueError: always.
    """
    msg = f"no opinion on a response of {len(solution_str)} characters"
    raise ValueError(msg)
