"""Batches ahead on shared devices: more prompts in flight than a step needs, and the slow ones are cut and go on later.

::

    step k    submit ─ poll ─ poll ─ … ─ enough prompts are settled ─ abort     devices to training
                 ▲                                                      │
    step k + 1   └── prompt + what there is of the response ◀───────────┘       with the weights of step k

A response may so hold tokens of several weight versions; ``version_spans`` says which, and each log-prob is that of the
version that drew its token. docs/schedules.md tells what that means for training.

What repeats and what does not: a token depends on (seed, uid, position) and on the weights that drew it alone. *Which*
weights those were, and which prompts make a batch, depends on what was ready when; so two runs agree in their draws, not
in their order.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from rl_dataproto import DataProto, jagged_from_rows, object_array

from rl_core.contracts.sampler import PromptGroup, RolloutWorkers, Sampler
from rl_core.errors import DeadlineError, WorkerError
from rl_core.metrics import Metric, merge_metrics
from rl_core.trainer.ppo.sampler import IN_FLIGHT_KEY, extras_as_columns, reports_of, training_prompts
from rl_core.trainer.ppo.sampler_failures import failure_metrics, report_failures, require_rollouts
from rl_core.trainer.ppo.sampler_flight import Flight, InFlight, rows_of
from rl_core.trainer.ppo.step import METRICS_KEY
from rl_core.workers.generation import ABORT_DEADLINE_S
from rl_core.workers.rollout_rows import FAILURE_KEY, VERSIONS_KEY, RolloutRow, response_columns, unpack_rows

if TYPE_CHECKING:
    from torch import Tensor

    from rl_core.config import PPOTrainerConfig
    from rl_core.data.loader import PromptLoader

POLL_S = 0.2
"""Seconds that a poll waits for the first response of a replica."""
STALL_S = 2 * ABORT_DEADLINE_S
"""Seconds beyond a response's own deadline without any news, after which the workers themselves have lost it."""


class ColocateAsyncSampler(Sampler):
    """``trainer.v1.colocate_async.num_warmup_batches`` batches ahead of the one that is trained.

    With ``trainer.v1.sampler.max_off_policy_strategy=drop`` a batch is made of the prompts that were ready first, and a
    response with a token more than ``max_off_policy_threshold`` versions old is dropped and drawn anew, for which the batch
    waits. With ``wait`` batches keep the order of the data, and no more are ahead than the threshold allows, so that
    nothing is ever too old.
    """

    def __init__(self, config: PPOTrainerConfig, loader: PromptLoader, workers: RolloutWorkers) -> None:
        """Store the arguments.

        Args:
            config: the run's configuration.
            loader: draws prompts.
            workers: the actor-rollout worker group.
        """
        self._config = config
        self._loader = loader
        self._workers = workers
        self._flight = Flight()
        self._num_draws = 0
        self._keeps_order = config.trainer.v1.sampler.max_off_policy_strategy == "wait"
        self._num_ahead = batches_ahead(config)
        self.groups: list[PromptGroup] = []

    @classmethod
    def from_workers(cls, config: PPOTrainerConfig, loader: PromptLoader, workers: RolloutWorkers) -> Self:
        """See ``Sampler``."""
        return cls(config, loader, workers)

    def next(self) -> DataProto:
        """See ``Sampler``.

        Raises:
            DeadlineError: the workers gave no sign of a response long after its deadline; names the prompts.
        """
        version = self._workers.get_policy_version()
        self._draw()
        if not self._flight.entries:
            raise StopIteration
        self.groups = [entry.group for entry in self._flight.entries]
        limit = self._config.trainer.v1.sampler.max_off_policy_threshold
        num_dropped = 0 if limit is None else self._flight.drop_older_than(version - limit)
        metrics = self._generate() if self._ready() is None else {}
        chosen = self._ready() or []
        self._flight.remove(chosen)
        groups = [entry.group for entry in chosen]
        require_rollouts(self._config, groups)
        batch = finished_batch(chosen, version)
        batch.meta_info[METRICS_KEY] = (
            metrics
            | failure_metrics(groups)
            | staleness_metrics(batch, version)
            | {
                "rollout/too_old": Metric(num_dropped, "sum"),
                "rollout/prompts_in_flight": Metric(len(self._flight.entries), "last"),
            }
        )
        return batch

    def state_dict(self) -> dict[str, Any]:
        """See ``Stateful``. What was in flight is drawn anew after a resume: its prompts are kept, its tokens are not."""
        return {
            "step": self._num_draws,
            "loader": self._loader.state_dict(),
            IN_FLIGHT_KEY: self._flight.state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See ``Stateful``."""
        self._num_draws = state["step"]
        self._loader.load_state_dict(state["loader"])
        self._flight = Flight.restored(
            state.get(IN_FLIGHT_KEY, []),
            lambda draw: training_prompts(self._config, self._loader.batch(draw), draw),
        )

    def _draw(self) -> None:
        """Fill the flight up, with no more prompts than the run will train on, as far as that is known."""
        size, steps = self._loader.batch_size, self._config.trainer.total_training_steps
        last = len(self._loader)
        if steps is not None and not self._config.algorithm.filter_groups.enable:
            last = min(steps, last)
        while len(self._flight.entries) <= self._num_ahead * size and self._num_draws < last:
            self._flight.add(self._num_draws, training_prompts(self._config, self._loader.next(), self._num_draws))
            self._num_draws += 1

    def _ready(self) -> list[InFlight] | None:
        """The prompts of the next batch in order of the data; None while they are not settled."""
        entries = self._flight.entries
        size = min(self._loader.batch_size, len(entries))
        due = [entry for entry in entries if self._keeps_order or entry.is_due][:size]
        waited_for = set(map(id, due))
        settled = [entry for entry in entries if entry.settled_at is not None and id(entry) not in waited_for]
        if any(entry.settled_at is None for entry in due) or len(due) + len(settled) < size:
            return None
        # All in `settled` have settled; -1 only tells the type checker.
        first = sorted(settled, key=lambda entry: -1 if entry.settled_at is None else entry.settled_at)
        return sorted([*due, *first][:size], key=lambda entry: (entry.draw, entry.row))

    def _generate(self) -> dict[str, Metric]:
        """One generation phase: until a batch is ready, then everybody else is cut."""
        prompts = self._flight.start()
        waiting = set(prompts.non_tensor_batch["request_id"])
        metrics = merge_metrics(reports_of(self._workers.submit_rollouts(prompts)))
        last_news = time.monotonic()
        while self._ready() is None:
            arrived = unpack_rows(self._workers.poll_rollouts(POLL_S))
            self._take(arrived, waiting)
            if arrived:
                last_news = time.monotonic()
            self._check_stall(time.monotonic() - last_news, waiting)
        rest = unpack_rows(self._workers.abort_rollouts())
        self._take(rest, waiting)
        if waiting:
            msg = f"abort_rollouts did not return {len(waiting)} responses: {', '.join(sorted(waiting)[:5])}"
            raise WorkerError(msg)
        return metrics | {"rollout/cut": Metric(sum(not row.is_settled for row in rest), "sum")}

    def _take(self, rows: list[RolloutRow], waiting: set[str]) -> None:
        waiting.difference_update(row.request_id for row in rows)
        report_failures(entry.group for entry in self._flight.take(rows))
        if self.on_responses is not None and (whole := self._flight.whole(rows)) is not None:
            self.on_responses(whole)

    def _check_stall(self, silent_s: float, waiting: set[str]) -> None:
        limit = self._config.trainer.rollout_deadline_s + STALL_S
        if silent_s > limit:
            msg = (
                f"nothing was heard for {silent_s:.0f} s of {len(waiting)} responses, which is beyond their deadline "
                f"(trainer.rollout_deadline_s): {', '.join(sorted(waiting)[:5])}"
            )
            raise DeadlineError(msg)


def batches_ahead(config: PPOTrainerConfig) -> int:
    """Batches that may be in flight besides the next one."""
    v1, actor = config.trainer.v1, config.actor_rollout_ref.actor
    wanted, limit = v1.colocate_async.num_warmup_batches, v1.sampler.max_off_policy_threshold
    if limit is None or v1.sampler.max_off_policy_strategy != "wait":
        return wanted
    # Each optimizer step is a version; a step that is skipped makes none, so this is the most.
    versions = actor.ppo_epochs * -(-config.data.train_batch_size // actor.ppo_mini_batch_size)
    return min(wanted, limit // versions)


def finished_batch(entries: list[InFlight], version: int) -> DataProto:
    """The whole responses to ``entries`` as the loop's batch.

    Args:
        entries: settled prompts.
        version: of the weights that are trained now; ``on_policy_mask`` marks their tokens.
    """
    prompts, rows = rows_of(entries, settled=True)
    prompts = prompts.select(meta_info_keys=[])
    has_log_probs = all(row.log_probs is not None for row in rows)
    responses = response_columns(list(prompts.batch["prompts"].unbind()), rows, has_log_probs=has_log_probs)
    responses.pop(non_tensor_batch_keys=[FAILURE_KEY])
    own = DataProto.from_dict(
        tensors={"on_policy_mask": jagged_from_rows([_drawn_by(version, row) for row in rows], torch.bool)},
        non_tensors={VERSIONS_KEY: object_array([row.versions for row in rows])},
    )
    return prompts.union(extras_as_columns(responses)).union(own)


def staleness_metrics(batch: DataProto, version: int) -> dict[str, Metric]:
    """How old the oldest token of each row is, in weight versions, and how much of the batch the current ones drew."""
    staleness = version - batch.batch["weight_version"].numpy()
    spans = [len(versions) for versions in batch.non_tensor_batch[VERSIONS_KEY]]
    is_current = batch.batch["on_policy_mask"].values()
    return {
        "rollout/staleness/mean": Metric(float(np.mean(staleness)), "mean", count=len(staleness)),
        "rollout/staleness/max": Metric(float(np.max(staleness)), "max"),
        "rollout/version_spans/max": Metric(max(spans), "max"),
        "rollout/off_policy_tokens": Metric(1.0 - float(is_current.double().mean()), "mean", count=len(is_current)),
    }


def _drawn_by(version: int, row: RolloutRow) -> Tensor:
    return torch.cat(
        [torch.full((count,), drawn == version, dtype=torch.bool) for drawn, count in row.versions]
        or [torch.empty(0, dtype=torch.bool)]
    )
