"""Finding the answer in a response, in time linear in its length, and reading ground truths.

A response is whatever a model wrote: every function here takes any text, and gives None where it holds no answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rl_rewards.errors import GroundTruthError

BOXES: Final = ("\\boxed", "\\fbox")
"""Commands that mark an answer."""

MAX_LINE: Final = 2_000
"""Characters of an answer that is given in words."""

_ANNOUNCED = re.compile(r"\banswer\b[ \t*_]*(?:is\b|:|=)[ \t*_:]*", re.IGNORECASE)
_WRAPPING = " \t\r\n*_`\"'"


def response_text(response: Any) -> str:
    """The response as text; empty for None."""
    if response is None:
        return ""
    return response if isinstance(response, str) else str(response)


def after_thinking(text: str) -> str:
    """What follows the last ``</think>``; all of a text without one."""
    return text.rpartition("</think>")[2]


def last_boxed(text: str) -> str | None:
    r"""Content of the last ``\boxed{...}`` or ``\fbox{...}``, braces counted.

    A last box that is never closed is a response cut off in its answer: it gives None, and no earlier box stands in for it.
    ``\boxed 7`` without braces gives the word that follows.
    """
    start, command = max((text.rfind(command), command) for command in BOXES)
    if start < 0:
        return None
    rest = start + len(command)
    while rest < len(text) and text[rest] == " ":
        rest += 1
    if rest == len(text):
        return None
    if text[rest] != "{":
        return re.split(r"[\s$]", text[rest : rest + MAX_LINE], maxsplit=1)[0].rstrip(".,") or None
    end = closing_brace(text, rest)
    return None if end is None else text[rest + 1 : end].strip() or None


def closing_brace(text: str, opening: int) -> int | None:
    r"""Index of the brace that closes the one at ``opening``; ``\{`` and ``\}`` do not count."""
    depth = 0
    position = opening
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 2
            continue
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return position
        position += 1
    return None


def last_tagged(text: str, tag: str = "answer") -> str | None:
    """Content of the last complete ``<tag>...</tag>``; empty content is no answer."""
    end = text.rfind(f"</{tag}>")
    start = text.rfind(f"<{tag}>", 0, max(end, 0))
    if end < 0 or start < 0:
        return None
    return text[start + len(tag) + 2 : end].strip() or None


def announced(text: str) -> str | None:
    """What follows the last "answer is" or "answer:", to the end of its line, without emphasis and a final full stop."""
    last = None
    for last in _ANNOUNCED.finditer(text):  # noqa: B007 - the last one is wanted
        pass
    if last is None:
        return None
    line = text[last.end() : last.end() + MAX_LINE].split("\n", 1)[0]
    return line.strip(_WRAPPING).rstrip(".").strip(_WRAPPING) or None


def golds(ground_truth: Any) -> list[str]:
    """The right answers as texts: one, or each of a list, an array, or a dict with ``target``.

    Raises:
        GroundTruthError: there is none.
    """
    if isinstance(ground_truth, Mapping):
        ground_truth = ground_truth.get("target")
    found = [str(item).strip() for item in _items(ground_truth) if item is not None]
    found = [item for item in found if item]
    if not found:
        msg = f"the ground truth is {ground_truth!r}; the row needs a right answer in reward_model.ground_truth"
        raise GroundTruthError(msg)
    return found


def _items(value: Any) -> Iterator[Any]:
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, list | tuple | set | frozenset):
        yield from value
    else:
        yield value


WAYS: Final = ("tag", "boxed", "hashes", "announced", "last_line", "all")


def find_answer(text: str, ways: Sequence[str]) -> str | None:
    """The answer by the first of several ways that finds one.

    Args:
        text: the response.
        ways: ``tag``: the last ``<answer>...</answer>``; ``boxed``: the last box; ``hashes``: the line after the last ``####``;
            ``announced``: the line after the last "answer is" or "answer:"; ``last_line``: the last line with anything in it;
            ``all``: the whole response after its thinking.

    Raises:
        ValueError: one of the ways is unknown.
    """
    if unknown := [way for way in ways if way not in WAYS]:
        msg = f"extract names {unknown}; answers are found by {', '.join(WAYS)}"
        raise ValueError(msg)
    return next((found for way in ways if (found := _find(text, way))), None)


def _find(text: str, way: str) -> str | None:
    match way:
        case "tag":
            return last_tagged(text)
        case "boxed":
            return last_boxed(text)
        case "hashes":
            _, marker, tail = text.rpartition("####")
            return tail.strip().split("\n", 1)[0].strip() if marker else None
        case "announced":
            return announced(text)
        case "last_line":
            return after_thinking(text).rstrip().rpartition("\n")[2].strip()
    return after_thinking(text).strip()


def ways_of(extract: str | Sequence[str]) -> Sequence[str]:
    """One way or several, as a reward's argument gives them."""
    return (extract,) if isinstance(extract, str) else tuple(extract)
