r"""Mathematics with one right answer: the last ``\boxed{...}``, compared as strings, numbers and by computer algebra."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from rl_rewards.answers import MAX_LINE, announced, golds, last_boxed, response_text
from rl_rewards.math_equal import same_answer

Extract = Literal["boxed", "announced", "any"]
MAX_TAIL = 4_000
"""Characters from the end of a response in which a formula or number without a box is looked for."""


def compute_score(
    *,
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    extract: Extract = "announced",
) -> float:
    r"""Compare the answer of a response with the right one.

    Args:
        data_source: not used.
        solution_str: the response.
        ground_truth: the right answer, with or without a box; or several, each of which is right.
        extra_info: not used.
        extract: where the answer is looked for. ``boxed``: the last ``\boxed`` or ``\fbox``. ``announced``: without a box, the
            line after the last "answer is" or "answer:". ``any``: without these, the last formula in dollar signs.

    Returns:
        1.0 or 0.0. A box that the end of the response cuts off is no answer.

    Raises:
        GroundTruthError: there is no right answer.
        GraderError: the right answer cannot be compared with anything.
        ValueError: there is no such way to extract.
    """
    right = [last_boxed(gold) or gold for gold in golds(ground_truth)]
    answer = extract_answer(response_text(solution_str), extract)
    if answer is None or len(answer) > MAX_LINE:
        return 0.0
    return float(any(same_answer(gold, answer) for gold in right))


def extract_answer(text: str, extract: Extract = "announced") -> str | None:
    """The answer as written; None where there is none.

    Raises:
        ValueError: there is no such way to extract.
    """
    if extract not in ("boxed", "announced", "any"):
        msg = f"extract is {extract!r}; answers are looked for by boxed, announced or any"
        raise ValueError(msg)
    boxed = last_boxed(text)
    if boxed is not None or extract == "boxed" or "\\boxed" in text or "\\fbox" in text:
        return boxed
    line = announced(text)
    if line is not None or extract == "announced":
        return _first_formula(line) if line else None
    parts = text[-MAX_TAIL:].replace("\\$", "").split("$")
    formulas = [part for part in parts[1::2] if part.strip()]
    return formulas[-1].strip() if formulas else None


def _first_formula(line: str) -> str:
    r"""Of ``$7$, because ...`` the formula; of ``\(7\)`` too; a line without a formula as it is."""
    for opening, closing in (("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        if line.startswith(opening):
            formula, found, _ = line.removeprefix(opening).lstrip("$").partition(closing)
            if found and formula.strip():
                return formula.strip()
    return line
