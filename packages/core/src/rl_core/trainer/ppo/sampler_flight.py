"""Prompts that were drawn and not yet handed to the loop, with what there is of their responses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Self

import numpy as np
from rl_dataproto import DataProto, jagged_from_rows

from rl_core.contracts.sampler import GroupStatus, PromptGroup
from rl_core.trainer.ppo.sampler import prompt_groups
from rl_core.trainer.ppo.sampler_failures import settle_group
from rl_core.trainer.ppo.seeding import is_greedy
from rl_core.workers.rollout_rows import RolloutRow, pack_rows


@dataclass(slots=True, kw_only=True, eq=False)
class InFlight:
    """One prompt and its responses.

    Attributes:
        group: what others may know of it.
        draw: number of the draw that brought it.
        row: its place in the draw.
        first: its first row in ``prompts``.
        prompts: the rows of the whole draw.
        responses: one for each of its rows.
        settled_at: order in which groups settled; None while a response is missing.
        is_due: a response was dropped for its age: the next batch waits for this prompt.
    """

    group: PromptGroup
    draw: int
    row: int
    first: int
    prompts: DataProto
    responses: list[RolloutRow] = field(default_factory=list)
    settled_at: int | None = None
    is_due: bool = False

    @property
    def rows(self) -> range:
        """Its rows in ``prompts``."""
        return range(self.first, self.first + len(self.responses))


class Flight:
    """Everything that is in flight, oldest prompt first."""

    def __init__(self) -> None:
        """Nothing is."""
        self.entries: list[InFlight] = []
        self._num_settled = 0

    def add(self, draw: int, prompts: DataProto, rows: Collection[int] | None = None) -> None:
        """Take the prompts of a draw in, or only those at ``rows`` of it."""
        first = 0
        names = prompts.non_tensor_batch["request_id"]
        for row, group in enumerate(prompt_groups(prompts)):
            end = first + group.size
            end += end < len(names) and is_greedy(names[end])
            if rows is None or row in rows:
                responses = [RolloutRow(request_id=str(name)) for name in names[first:end]]
                self.entries.append(
                    InFlight(group=group, draw=draw, row=row, first=first, prompts=prompts, responses=responses)
                )
            first = end

    def state(self) -> list[list[int]]:
        """(draw, row) of each prompt: what ``restored`` needs."""
        return [[entry.draw, entry.row] for entry in self.entries]

    @classmethod
    def restored(cls, state: Iterable[Sequence[int]], prompts_of: Callable[[int], DataProto]) -> Self:
        """The prompts of a ``state``, without responses.

        Args:
            state: of another flight.
            prompts_of: the rows of a whole draw.
        """
        flight = cls()
        rows: dict[int, set[int]] = {}
        for draw, row in state:
            rows.setdefault(draw, set()).add(row)
        for draw in sorted(rows):
            flight.add(draw, prompts_of(draw), rows[draw])
        return flight

    def remove(self, entries: Collection[InFlight]) -> None:
        """``entries`` were handed to the loop."""
        gone = set(map(id, entries))
        self.entries = [entry for entry in self.entries if id(entry) not in gone]

    def start(self) -> DataProto:
        """All responses that are not settled, to be submitted; their prompts are running from now on."""
        running = [entry for entry in self.entries if entry.settled_at is None]
        for entry in running:
            entry.group.status = GroupStatus.RUNNING
        prompts, rows = rows_of(_interleaved(running), settled=False)
        return prompts.union(pack_rows(rows, has_log_probs=True))

    def take(self, rows: Iterable[RolloutRow]) -> list[InFlight]:
        """Put down what came; the prompts that are settled by it."""
        places = {
            response.request_id: (entry, number)
            for entry in self.entries
            for number, response in enumerate(entry.responses)
        }
        touched: dict[int, InFlight] = {}
        for row in rows:
            entry, number = places[row.request_id]
            entry.responses[number] = row
            touched[id(entry)] = entry
        return [entry for entry in touched.values() if self._settle(entry)]

    def whole(self, rows: Iterable[RolloutRow]) -> DataProto | None:
        """Prompt columns and ``responses`` of those of ``rows``, which were taken, that are whole; None if none is."""
        names = {row.request_id for row in rows}
        wanted = [
            (entry, number)
            for entry in self.entries
            for number, response in enumerate(entry.responses)
            if response.request_id in names and response.is_settled and response.failure is None
        ]
        if not wanted:
            return None
        responses = jagged_from_rows([entry.responses[number].token_ids for entry, number in wanted])
        prompts = _prompt_rows(wanted).select(meta_info_keys=[])
        return prompts.union(DataProto.from_dict(tensors={"responses": responses}))

    def drop_older_than(self, version: int) -> int:
        """Forget responses with a token of an older version than ``version``, so that they are drawn anew; how many."""
        dropped = 0
        for entry in self.entries:
            for number, response in enumerate(entry.responses):
                oldest = response.oldest_version
                if oldest is not None and oldest < version:
                    entry.responses[number] = RolloutRow(request_id=response.request_id)
                    entry.settled_at, entry.is_due, entry.group.status = None, True, GroupStatus.PENDING
                    dropped += 1
        return dropped

    def _settle(self, entry: InFlight) -> bool:
        if entry.settled_at is not None or not all(response.is_settled for response in entry.responses):
            return False
        sampled = [response for response in entry.responses if not is_greedy(response.request_id)]
        failures = [response.failure for response in sampled if response.failure is not None]
        settle_group(entry.group, [(failure.detail, failure.kind) for failure in failures])
        entry.settled_at = self._num_settled
        self._num_settled += 1
        return True


def rows_of(entries: Sequence[InFlight], *, settled: bool) -> tuple[DataProto, list[RolloutRow]]:
    """Prompt columns and responses of ``entries``, in their order.

    Args:
        entries: at least one.
        settled: rows with a whole response, or those that still want one. A failed response is neither.
    """
    wanted = [
        (entry, number)
        for entry in entries
        for number, row in enumerate(entry.responses)
        if row.failure is None and row.is_settled == settled
    ]
    return _prompt_rows(wanted), [entry.responses[number] for entry, number in wanted]


def _prompt_rows(wanted: Sequence[tuple[InFlight, int]]) -> DataProto:
    """The prompt columns of each (prompt, response), in this order; one selection a draw, however many prompts it has."""
    places: dict[int, list[int]] = {}
    for place, (entry, _) in enumerate(wanted):
        places.setdefault(entry.draw, []).append(place)
    parts = [
        wanted[mine[0]][0].prompts.select_idxs([wanted[place][0].rows[wanted[place][1]] for place in mine])
        for mine in places.values()
    ]
    return DataProto.concat(parts).select_idxs(np.argsort(np.concatenate(list(places.values()))))


def _interleaved(entries: Sequence[InFlight]) -> list[InFlight]:
    """In an order of which every stretch has prompts of all draws, so that each replica gets old and new ones."""
    by_draw: dict[int, list[InFlight]] = {}
    for entry in entries:
        by_draw.setdefault(entry.draw, []).append(entry)
    placed = [
        ((place + 0.5) / len(members), draw, entry)
        for draw, members in by_draw.items()
        for place, entry in enumerate(sorted(members, key=attrgetter("row")))
    ]
    return [entry for _, _, entry in sorted(placed, key=lambda item: item[:2])]
