"""The task: two numbers of two digits whose sum is below a hundred, cut into three parts that share no problem.

Three of five problems need a carry from the units to the tens. Of all 3,240 sums 39 % do; some that do not are left out,
so that a model that never carries is right on two of five.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

NUM_HELD_OUT: Final = 300
NUM_SFT: Final = 1200

_CARRIES: Final = 3
_OTHERS: Final = 2
"""Of so many problems together, how many need a carry and how many do not."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One sum.

    Attributes:
        left: 10 to 89.
        right: 10 to 89, and both together 99 at most.
    """

    left: int
    right: int

    @property
    def question(self) -> str:
        """What the model is asked, for example ``47+38=``."""
        return f"{self.left}+{self.right}="

    @property
    def total(self) -> int:
        """The right answer."""
        return self.left + self.right

    @property
    def needs_carry(self) -> bool:
        """Whether the units add up to ten or more."""
        return self.left % 10 + self.right % 10 >= 10


@dataclass(frozen=True, slots=True)
class Split:
    """Three parts of the problems; no problem is in two of them.

    Attributes:
        held_out: never trained on; accuracy is measured here.
        sft: for the warm start.
        rl: for GRPO.
    """

    held_out: tuple[Problem, ...]
    sft: tuple[Problem, ...]
    rl: tuple[Problem, ...]


def split_problems(seed: int) -> Split:
    """All problems of the task in an order of ``seed``, cut into three. The mix of carries is the same in each part."""
    draw = random.Random(seed)
    everything = [Problem(left, right) for left in range(10, 90) for right in range(10, 100 - left)]
    draw.shuffle(everything)
    carries = [problem for problem in everything if problem.needs_carry]
    others = [problem for problem in everything if not problem.needs_carry]
    held_out, carries, others = _take(NUM_HELD_OUT, carries, others)
    sft, carries, others = _take(NUM_SFT, carries, others)
    rl, _, _ = _take(min(len(carries) // _CARRIES, len(others) // _OTHERS) * (_CARRIES + _OTHERS), carries, others)
    for part in (held_out, sft, rl):
        draw.shuffle(part)
    return Split(tuple(held_out), tuple(sft), tuple(rl))


def _take(
    count: int, carries: list[Problem], others: list[Problem]
) -> tuple[list[Problem], list[Problem], list[Problem]]:
    """``count`` problems in the mix of the task, and what is left of both kinds."""
    first = count * _CARRIES // (_CARRIES + _OTHERS)
    second = count - first
    return carries[:first] + others[:second], carries[first:], others[second:]
