r"""Multiple choice: the letter of the right option.

The letter is looked for in this order, and the first place that has one decides:

1. the last ``<answer>...</answer>``, then the last ``\boxed{...}``, if it holds one letter, alone or before its option's text
   (``B``, ``(B)``, ``\text{B}``, ``B. Paris``);
2. the last "answer is B", "Answer: (B)", "answer: **B**";
3. the last line, if it is nothing but the letter;
4. the last letter in round brackets or in bold, ``(B)`` or ``**B**``.

A letter that only stands in a sentence is never taken: "A cat" is no answer A, nor is "the answer is a prime" one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from rl_rewards.answers import after_thinking, announced, find_answer, response_text
from rl_rewards.errors import GroundTruthError
from rl_rewards.math_strings import unwrap_text

LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ALONE = re.compile(r"[\s(\[*_{]*([A-Za-z])[\s)\]*_}]*(?:[.:,)\]-].*|\s*)", re.DOTALL)
_MARKED = re.compile(r"\(([A-Z])\)|\*\*\(?([A-Z])\)?[.:]?\*\*")
_SENTENCE = re.compile(r"\s+(?!(?:because|since|as|and|which|with|due|for)\b)[a-z']")
"""Makes an A an article and an I a pronoun."""
_STARTS = re.compile(r"[\s(\[*_$]*(?:option|choice)?[\s(\[*_$]*([A-Za-z])(?![A-Za-z0-9'])", re.IGNORECASE)


def compute_score(
    *,
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    num_choices: int = 10,
) -> float:
    """Compare the letter of a response with the right one.

    Args:
        data_source: not used.
        solution_str: the response.
        ground_truth: the letter, also as ``(B)`` or ``B. Paris``; or, as a whole number, the option's place from 0.
        extra_info: not used.
        num_choices: letters that can be meant, from A on.

    Returns:
        1.0 or 0.0.

    Raises:
        GroundTruthError: the ground truth is no letter and no place.
    """
    letters = LETTERS[:num_choices]
    right = gold_letter(ground_truth, letters)
    return float(extract_letter(response_text(solution_str), letters) == right)


def gold_letter(ground_truth: Any, letters: str) -> str:
    """The right letter.

    Raises:
        GroundTruthError: there is none.
    """
    letter = None
    if isinstance(ground_truth, str):
        letter = _letter(ground_truth, letters)
    elif hasattr(ground_truth, "__index__") and not isinstance(ground_truth, bool):
        place = ground_truth.__index__()
        letter = letters[place] if 0 <= place < len(letters) else None
    if letter is None:
        msg = f"ground truth {ground_truth!r} is neither a letter of {letters} nor the place of one, counted from 0"
        raise GroundTruthError(msg)
    return letter


def extract_letter(text: str, letters: str = LETTERS[:10]) -> str | None:
    """The letter that a response chooses; None where it chooses none."""
    for way in ("tag", "boxed"):
        given = find_answer(text, [way])
        if given is not None:
            return _letter(given, letters)
    line = announced(text)
    if line is not None and (match := _STARTS.match(unwrap_text(line))):
        letter = match.group(1)
        # "The answer is a prime": a small letter counts only where nothing but punctuation follows.
        rest = unwrap_text(line)[match.end() :]
        if not rest.strip(" .)*_]$") or (letter.isupper() and not (letter in "AI" and _SENTENCE.match(rest))):
            return letter.upper() if letter.upper() in letters else None
    rest = after_thinking(text)
    last_line = rest.rstrip().rpartition("\n")[2]
    if len(last_line) < 20 and (letter := _letter(last_line, letters)) and len(last_line.strip(" ()[]*_.:")) == 1:
        return letter
    marked = [one or other for one, other in _MARKED.findall(rest)]
    return next((letter for letter in reversed(marked) if letter in letters), None)


def _letter(text: str, letters: str) -> str | None:
    match = _ALONE.fullmatch(unwrap_text(text[:1_000]).strip(" $"))
    letter = match.group(1).upper() if match else ""
    return letter if letter and letter in letters else None
