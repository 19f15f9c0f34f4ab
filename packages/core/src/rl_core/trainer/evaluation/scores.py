"""What the answers of an evaluation are worth: pass@k and its kin for each data source. What is missing is never 0."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from rl_dataproto import lengths

from rl_core.errors import ConfigError
from rl_core.trainer.ppo.validation_metrics import expected_best

if TYPE_CHECKING:
    from rl_core.contracts.reward import RewardResult
    from rl_core.trainer.ppo.validation import Answers

ALL = "all"
"""Name of the line over all data sources."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer that was asked for.

    Attributes:
        prompt: number of its prompt among those that were answered.
        data_source: of the prompt.
        score: the reward; None where the rollout failed or the reward is missing.
        passed: whether it counts as right; None where there is no score.
        num_tokens: length of the response; None where the rollout failed.
        is_cut: whether it ended at the length limit.
    """

    prompt: int
    data_source: str
    score: float | None
    passed: bool | None
    num_tokens: int | None
    is_cut: bool


@dataclass(frozen=True, slots=True)
class PassAtK:
    """Share of prompts that at least one of k answers solves.

    Attributes:
        value: mean over prompts; None where no prompt has k scored answers.
        num_left_out: prompts with fewer scored answers than k, which have no such number.
    """

    value: float | None
    num_left_out: int


@dataclass(frozen=True, slots=True)
class SourceScores:
    """The numbers of one data source.

    Attributes:
        data_source: its name.
        num_prompts: prompts that were asked.
        num_answers: answers that were asked for.
        score: mean reward, prompts weighing the same; None where no answer has one.
        passes: k -> pass@k.
        num_tokens: mean length of the responses that came, in tokens; None where none came.
        cut_share: share of these that ended at the length limit.
        num_failed: rollouts that gave no answer.
        num_missing: answers without a reward.
    """

    data_source: str
    num_prompts: int
    num_answers: int
    score: float | None
    passes: Mapping[int, PassAtK]
    num_tokens: float | None
    cut_share: float | None
    num_failed: int
    num_missing: int


def read_answers(answers: Answers, num_answers: int, pass_from: float) -> list[Answer]:
    """One ``Answer`` for each row of ``answers.prompts``.

    Args:
        answers: from ``Validator.answer``.
        num_answers: answers to each prompt, side by side.
        pass_from: an answer is right from this value of ``acc`` on; of the score where a data source's rewards have no ``acc``.
    """
    sources = [str(source) for source in answers.prompts.non_tensor_batch["data_source"]]
    number_of = {int(row): number for number, row in enumerate(answers.rows)}
    num_tokens = lengths(answers.batch.batch["responses"]).tolist()
    is_cut = answers.batch.non_tensor_batch["finish_reason"] == "length"
    by_acc = _judged_by_acc([sources[row] for row in answers.rows], answers.results)
    read = []
    for row, source in enumerate(sources):
        number = number_of.get(row)
        if number is None:
            read.append(Answer(row // num_answers, source, None, None, None, is_cut=False))
            continue
        result = answers.results[number]
        value = result.extra["acc"] if source in by_acc and result.score is not None else result.score
        passed = None if value is None else bool(value >= pass_from)
        read.append(
            Answer(row // num_answers, source, result.score, passed, num_tokens[number], is_cut=bool(is_cut[number]))
        )
    return read


def _judged_by_acc(sources: Sequence[str], results: Sequence[RewardResult]) -> set[str]:
    """Data sources of which every scored answer has a number under ``acc``."""
    has_acc: dict[str, bool] = defaultdict(lambda: True)
    for source, result in zip(sources, results, strict=True):
        if result.score is not None:
            has_acc[source] &= isinstance(result.extra.get("acc"), bool | int | float | np.number | np.bool_)
    return {source for source, always in has_acc.items() if always}


def score_sources(answers: Sequence[Answer], sizes: Sequence[int]) -> list[SourceScores]:
    """The numbers of each data source by name; of all together at the end where there are several.

    Args:
        answers: from ``read_answers``.
        sizes: every k of pass@k.
    """
    by_source: dict[str, list[Answer]] = defaultdict(list)
    for answer in answers:
        by_source[answer.data_source].append(answer)
    scores = [_scores(source, group, sizes) for source, group in sorted(by_source.items())]
    return scores if len(scores) == 1 else [*scores, _scores(ALL, answers, sizes)]


def _scores(name: str, answers: Sequence[Answer], sizes: Sequence[int]) -> SourceScores:
    prompts: dict[int, list[Answer]] = defaultdict(list)
    for answer in answers:
        prompts[answer.prompt].append(answer)
    scored = [[answer for answer in group if answer.score is not None] for group in prompts.values()]
    came = [answer for answer in answers if answer.num_tokens is not None]
    return SourceScores(
        data_source=name,
        num_prompts=len(prompts),
        num_answers=len(answers),
        score=_mean([float(np.mean([answer.score for answer in group])) for group in scored if group]),
        passes={k: pass_at_k([[bool(answer.passed) for answer in group] for group in scored], k) for k in sizes},
        num_tokens=_mean([float(answer.num_tokens) for answer in came if answer.num_tokens is not None]),
        cut_share=_mean([float(answer.is_cut) for answer in came]),
        num_failed=len(answers) - len(came),
        num_missing=sum(answer.score is None for answer in came),
    )


def pass_at_k(prompts: Sequence[Sequence[bool]], k: int) -> PassAtK:
    """Unbiased pass@k: for a prompt with c right ones among n answers, 1 - C(n - c, k) / C(n, k).

    Args:
        prompts: for each prompt, which of its scored answers are right.
        k: answers that may be tried.

    Source: Chen et al. 2021, arXiv:2107.03374, eq. 1.
    """
    values = [expected_best([float(passed) for passed in group], k)[0] for group in prompts if len(group) >= k]
    return PassAtK(_mean(values), len(prompts) - len(values))


def pass_sizes(text: str | None, num_answers: int) -> list[int]:
    """Every k of ``--k 1,4,8``; by default the powers of two below the number of answers, and that number.

    Raises:
        ConfigError: one is no whole number from 1 to the number of answers.
    """
    if text is None:
        return [*(2**power for power in range(num_answers.bit_length()) if 2**power < num_answers), num_answers]
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isdecimal() and int(word) > 0 for word in words):
        msg = f"--k is {text!r}. Give whole numbers from 1 on, such as --k 1,4,8."
        raise ConfigError(msg)
    sizes = sorted({int(word) for word in words})
    if sizes[-1] > num_answers:
        msg = (
            f"--k asks for pass@{sizes[-1]}, but each prompt gets {num_answers} answer{'s' * (num_answers > 1)}: k cannot "
            f"be larger than n. Raise --n to {sizes[-1]} or more."
        )
        raise ConfigError(msg)
    return sizes


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
