"""The task: two numbers of two digits whose sum is below a hundred, cut into three parts that share no two numbers.

``12+34=`` and ``34+12=`` are in the same part, so no part asks what another one asked the other way round. Three of five
problems need a carry from the units to the tens. Of all 3,240 sums 39 % do; some that do not are left out, so that a model
that never carries is right on two of five.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

NUM_HELD_OUT: Final = 300
NUM_SFT: Final = 1200
NUM_RL: Final = 600
"""With these, every problem that needs a carry is in one of the parts."""

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


_Twins = tuple[Problem, Problem]
"""Both orders of two numbers; of numbers added to themselves, which have one order, any two such problems."""


@dataclass(frozen=True, slots=True)
class Split:
    """Three parts of the problems; no problem is in two of them, in either order.

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
    carries, others = _twins(draw, needs_carry=True), _twins(draw, needs_carry=False)
    held_out, carries, others = _take(NUM_HELD_OUT, carries, others)
    sft, carries, others = _take(NUM_SFT, carries, others)
    rl, _, _ = _take(NUM_RL, carries, others)
    for part in (held_out, sft, rl):
        draw.shuffle(part)
    return Split(tuple(held_out), tuple(sft), tuple(rl))


def _twins(draw: random.Random, *, needs_carry: bool) -> list[_Twins]:
    """Every problem that does, or does not, need a carry, in twos that stay together."""
    problems = [Problem(left, right) for left in range(10, 90) for right in range(left, 100 - left)]
    problems = [problem for problem in problems if problem.needs_carry == needs_carry]
    draw.shuffle(problems)
    doubles = [problem for problem in problems if problem.left == problem.right]
    twins = [(one, Problem(one.right, one.left)) for one in problems if one.left != one.right]
    twins += zip(doubles[::2], doubles[1::2], strict=True)
    draw.shuffle(twins)
    return twins


def _take(count: int, carries: list[_Twins], others: list[_Twins]) -> tuple[list[Problem], list[_Twins], list[_Twins]]:
    """``count`` problems in the mix of the task, and what is left of both kinds."""
    both = _CARRIES + _OTHERS
    first, second = count * _CARRIES // both // 2, count * _OTHERS // both // 2
    taken = [problem for twins in carries[:first] + others[:second] for problem in twins]
    return taken, carries[first:], others[second:]
