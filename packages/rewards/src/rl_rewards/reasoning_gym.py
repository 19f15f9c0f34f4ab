"""Procedural tasks of reasoning-gym: the data set after ``reasoning_gym/`` in the data source scores its own answers.

Its scorers give something for an answer that stands among other words, and some for none at all; so the answer is taken out of
the response first, and no answer is 0. Some of them run answers as Python; see ``rl_rewards.reasoning_gym_guard``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import reasoning_gym
from reasoning_gym.factory import DATASETS

from rl_rewards.answers import find_answer, response_text, ways_of
from rl_rewards.errors import GraderError, GroundTruthError
from rl_rewards.reasoning_gym_guard import is_safe

PREFIX: Final = "reasoning_gym/"
MAX_CHARS: Final = 20_000
"""A longer answer is none; some scorers take time that grows with its square."""


def compute_score(
    *,
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    extract: str | Sequence[str] = ("tag", "boxed", "announced"),
    threshold: float | None = None,
) -> float:
    """Score an answer as its data set does.

    Args:
        data_source: ``reasoning_gym/`` and the name of a data set, as ``reasoning_gym/chain_sum``; with the prefix alone,
            ``source_dataset`` of the metadata is the name.
        solution_str: the response.
        ground_truth: the whole entry, a dict with ``question``, ``answer`` and ``metadata`` or its JSON text; or the answer.
        extra_info: with the answer alone, its ``metadata``, a dict or JSON text, and its ``question``, where the scorer reads
            them.
        extract: where the answer is looked for; see ``rl_rewards.answers.find_answer``.
        threshold: give 1.0 from this score on, else 0.0; None gives the score itself.

    Returns:
        Between 0.0 and 1.0; 0.0 where there is no answer.

    Raises:
        GraderError: there is no such data set, or its scorer fails on the right answer too.
        GroundTruthError: the row lacks what the scorer needs.
        ValueError: ``extract`` is unknown.
    """
    entry = _entry(ground_truth, extra_info or {})
    if "output" in entry["metadata"]:
        entry["metadata"]["output"] = _tuples(entry["metadata"]["output"])
    name = data_source.removeprefix(PREFIX) or str(entry["metadata"].get("source_dataset", ""))
    if name not in DATASETS:
        msg = f"data_source {data_source!r} names no data set of reasoning-gym; it has {', '.join(sorted(DATASETS))}"
        raise GraderError(msg)
    scorer = reasoning_gym.get_score_answer_fn(name)
    answer = find_answer(response_text(solution_str), ways_of(extract))
    if answer is None or len(answer) > MAX_CHARS or not is_safe(name, answer, entry):
        return 0.0
    try:
        score = float(scorer(answer, entry))
    except Exception as error:
        _require_sane(scorer, entry, name, error)
        return 0.0
    if threshold is not None:
        return float(score >= threshold)
    return min(max(score, 0.0), 1.0)


def _entry(ground_truth: Any, extra_info: Mapping[str, Any]) -> dict[str, Any]:
    whole = _mapping(ground_truth)
    if "answer" not in whole or "metadata" not in whole:
        whole = {**extra_info, "answer": ground_truth}
    answer, metadata = whole["answer"], _mapping(whole.get("metadata"))
    if answer is None and not metadata:
        msg = "the row has neither an answer nor metadata; reasoning-gym scores by them"
        raise GroundTruthError(msg)
    return {
        "question": whole.get("question") or "",
        "answer": None if answer is None else str(answer),
        "metadata": metadata,
    }


def _tuples(value: Any) -> Any:
    """A grid as the data sets make it; of a file it comes as lists, which are equal to no tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


def _mapping(value: Any) -> dict[str, Any]:
    """A dict, also from its JSON text; empty for anything else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return dict(value) if isinstance(value, Mapping) else {}


def _require_sane(scorer: Any, entry: dict[str, Any], name: str, cause: Exception) -> None:
    """An answer may be too odd for a scorer, and is wrong then; a scorer that fails on the right answer has not judged."""
    if entry["answer"] is not None:
        try:
            scorer(entry["answer"], entry)
        except Exception as error:
            cause = error
        else:
            return
    msg = (
        f"the scorer of reasoning-gym's {name} fails on the right answer too: {type(cause).__name__}: {cause}. The row needs "
        "the whole entry as its ground truth, or its metadata in extra_info.metadata."
    )
    raise GroundTruthError(msg) from cause
