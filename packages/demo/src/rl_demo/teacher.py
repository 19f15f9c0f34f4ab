"""What SFT is taught: a careless teacher's answers and a careful one's, mixed.

::

    47+38=    careless (75 %)   75                  adds the columns and forgets the carry
              careful  (25 %)   7+8=15 so 85        writes the units down first, and is right

After SFT the model answers in either way. Its likeliest answer is the careless one, which is right only where nothing is
carried. Nothing tells it which way is better: that is left to the reward.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from rl_demo.problems import Problem

CAREFUL_SHARE: Final = 0.25
"""Share of the answers that the careful teacher gives."""

SO: Final = " so "
"""Stands between the work and the answer."""


def careless_answer(problem: Problem) -> str:
    """The columns added without the carry from the units; right where there is none."""
    tens = problem.left // 10 + problem.right // 10
    return str(tens * 10 + problem.total % 10)


def careful_answer(problem: Problem) -> str:
    """The sum of the units, then the sum."""
    left, right = problem.left % 10, problem.right % 10
    return f"{left}+{right}={left + right}{SO}{problem.total}"


def taught_answers(problems: Sequence[Problem], seed: int) -> list[str]:
    """One answer for each of ``problems``, by a teacher drawn at random; a problem that comes twice is drawn for twice."""
    draw = random.Random(f"teacher {seed}")
    return [
        careful_answer(problem) if draw.random() < CAREFUL_SHARE else careless_answer(problem) for problem in problems
    ]
