"""The synchronous sampler: submit a step's prompts, wait for all of them, count what failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from rl_dataproto import DataProto, jagged_from_rows, lengths

from rl_core.contracts.rollout import SamplingParams
from rl_core.contracts.sampler import GroupStatus, PromptGroup, RolloutWorkers, Sampler
from rl_core.data.prompts import passed_columns
from rl_core.errors import CheckpointError, ShapeError
from rl_core.metrics import Metric, merge_metrics
from rl_core.trainer.ppo.sampler_failures import failure_metrics, report_failures, require_rollouts, settle_group
from rl_core.trainer.ppo.seeding import GREEDY, group_uid, is_greedy, request_id, request_seed
from rl_core.trainer.ppo.step import METRICS_KEY
from rl_core.workers.generation import DEADLINE_KEY, ERROR_KEY, EXTRAS_KEY, FAILURE_KEY, SAMPLING_KEY

if TYPE_CHECKING:
    from rl_core.config import PPOTrainerConfig
    from rl_core.data.loader import PromptLoader

IN_FLIGHT_KEY = "in_flight"
"""Key of a sampler's state: (draw, row) of every prompt that was drawn and not yet handed to the loop."""


class SyncSampler(Sampler):
    """One batch at a time, on the current weights; the only caller of ``generate_sequences``."""

    def __init__(
        self, config: PPOTrainerConfig, loader: PromptLoader, generate: Callable[[DataProto], DataProto]
    ) -> None:
        """Store the arguments.

        Args:
            config: the run's configuration.
            loader: draws prompts.
            generate: ``generate_sequences`` of the actor-rollout worker group.
        """
        self._config = config
        self._loader = loader
        self._generate = generate
        self._step = 0
        self.groups: list[PromptGroup] = []

    @classmethod
    def from_workers(cls, config: PPOTrainerConfig, loader: PromptLoader, workers: RolloutWorkers) -> Self:
        """See ``Sampler``."""
        return cls(config, loader, workers.generate_sequences)

    def next(self) -> DataProto:
        """See ``Sampler``."""
        prompts = training_prompts(self._config, self._loader.next(), self._step)
        self._step += 1
        self.groups = []
        batch, metrics = self._answered(prompts)
        batch.meta_info[METRICS_KEY] = metrics | failure_metrics(self.groups)
        return batch

    def _answered(self, prompts: DataProto) -> tuple[DataProto, dict[str, Metric]]:
        """The responses that came, with the metrics of the hand-over; the groups are settled and stand in ``groups``."""
        groups = prompt_groups(prompts)
        self.groups += groups
        for group in groups:
            group.status = GroupStatus.RUNNING
        outputs = self._generate(prompts)
        metrics = merge_metrics(reports_of(outputs))
        errors = outputs.non_tensor_batch[ERROR_KEY]
        # A generator of one's own may not say of which kind its errors are.
        kinds = outputs.non_tensor_batch.pop(FAILURE_KEY, [None] * len(errors))
        failures: dict[str, list[tuple[str, str | None]]] = {group.uid: [] for group in groups}
        columns = prompts.non_tensor_batch
        for uid, name, error, kind in zip(columns["uid"], columns["request_id"], errors, kinds, strict=True):
            if error is not None and not is_greedy(name):
                failures[uid].append((error, kind))
        for group in groups:
            settle_group(group, failures[group.uid])
        report_failures(groups)
        require_rollouts(self._config, self.groups)
        kept = np.array([row for row, error in enumerate(errors) if error is None], dtype=np.int64)
        for key in (SAMPLING_KEY, DEADLINE_KEY):
            prompts.meta_info.pop(key)
        return prompts.select_idxs(kept).union(extras_as_columns(outputs.select_idxs(kept))), metrics

    def state_dict(self) -> dict[str, Any]:
        """See ``Stateful``."""
        return {"step": self._step, "loader": self._loader.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See ``Stateful``."""
        if state.get(IN_FLIGHT_KEY):
            msg = (
                f"the checkpoint has {len(state[IN_FLIGHT_KEY])} prompts in flight, which the synchronous schedule would "
                "lose; resume with the trainer.v1.trainer_mode that wrote it, or with "
                "trainer.v1.sampler.sync_refill_failed_groups=true, which goes on with them"
            )
            raise CheckpointError(msg)
        self._step = state["step"]
        self._loader.load_state_dict(state["loader"])


def training_prompts(config: PPOTrainerConfig, items: Sequence[Mapping[str, Any]], step: int) -> DataProto:
    """``make_prompts`` of a training batch that was the ``step``-th to be drawn."""
    sampling = training_sampling(config)
    greedy = replace(sampling, temperature=0.0, top_p=1.0, top_k=-1)
    return make_prompts(
        items,
        step=step,
        seed=config.trainer.seed,
        num_samples=config.actor_rollout_ref.rollout.n,
        sampling=sampling,
        deadline_s=config.trainer.rollout_deadline_s,
        greedy=greedy if config.actor_rollout_ref.rollout.greedy_baseline else None,
    )


def prompt_groups(prompts: DataProto) -> list[PromptGroup]:
    """The groups of a batch of ``make_prompts``, pending, in its order."""
    sizes: dict[str, int] = {}
    for uid, name in zip(prompts.non_tensor_batch["uid"], prompts.non_tensor_batch["request_id"], strict=True):
        sizes[uid] = sizes.get(uid, 0) + (not is_greedy(name))
    return [PromptGroup(uid=uid, size=size, deadline_s=prompts.meta_info[DEADLINE_KEY]) for uid, size in sizes.items()]


def extras_as_columns(outputs: DataProto) -> DataProto:
    """Each per-token array that the engine passed through as a jagged column ``extras/<name>``.

    Args:
        outputs: finished rows with the object column ``rollout_extras``.

    Raises:
        ShapeError: a row lacks an array that another one has, or an array is not as long as its response.
    """
    extras = outputs.pop(non_tensor_batch_keys=[EXTRAS_KEY]).non_tensor_batch[EXTRAS_KEY]
    names = sorted({name for row in extras for name in row})
    if not names:
        return outputs
    for number, (row, length) in enumerate(zip(extras, lengths(outputs.batch["responses"]).tolist(), strict=True)):
        found = {name: len(values) for name, values in row.items()}
        if found != dict.fromkeys(names, length):
            msg = f"row {number}: extras {found} must have {names}, each as long as the response ({length} tokens)"
            raise ShapeError(msg)
    columns = {f"extras/{name}": jagged_from_rows([row[name] for row in extras]) for name in names}
    return outputs.union(DataProto.from_dict(tensors=columns))


def training_sampling(config: PPOTrainerConfig) -> SamplingParams:
    """How training responses are drawn."""
    rollout = config.actor_rollout_ref.rollout
    return SamplingParams(
        temperature=rollout.temperature,
        top_p=rollout.top_p,
        top_k=rollout.top_k,
        max_tokens=rollout.response_length or config.data.max_response_length,
        min_tokens=rollout.min_tokens,
        stop=tuple(rollout.stop),
        stop_token_ids=tuple(rollout.stop_token_ids),
        ignore_eos=rollout.ignore_eos,
    )


def make_prompts(
    items: Sequence[Mapping[str, Any]],
    *,
    step: int,
    seed: int,
    num_samples: int,
    sampling: SamplingParams,
    deadline_s: float,
    greedy: SamplingParams | None = None,
) -> DataProto:
    """One row for each response to be drawn, rows of one prompt side by side.

    Args:
        items: rows of a ``PromptDataset``.
        step: number of the step; with ``seed``, row and sample it determines uids and request seeds.
        seed: of the run.
        num_samples: responses to each prompt.
        sampling: how to draw.
        deadline_s: seconds that one response may take.
        greedy: how to draw one more response, the last row of its prompt; None draws none.

    Returns:
        Jagged int64 ``prompts``, int64 ``seed``; object ``uid``, ``request_id``, ``raw_prompt`` and the columns passed on.
        With a greedy row, ``is_greedy`` of its ``request_id``, also an object column with its sampling parameters; names and
        seeds of the other rows are the same with and without.
    """
    samples = [*range(num_samples), *([] if greedy is None else [GREEDY])]
    pairs = [(row, sample) for row in range(len(items)) for sample in samples]
    uids = [group_uid(step, row) for row, _ in pairs]
    passed_on = {name: _objects([items[row].get(name) for row, _ in pairs]) for name in passed_columns(items)}
    if greedy is not None:
        passed_on[SAMPLING_KEY] = _objects([greedy if sample == GREEDY else None for _, sample in pairs])
    return DataProto.from_dict(
        tensors={
            "prompts": jagged_from_rows(
                [torch.tensor(items[row]["prompt_ids"], dtype=torch.int64) for row, _ in pairs]
            ),
            "seed": torch.tensor([request_seed(seed, step, row, sample) for row, sample in pairs], dtype=torch.int64),
        },
        non_tensors={
            "uid": _objects(uids),
            "request_id": _objects([request_id(uid, sample) for uid, (_, sample) in zip(uids, pairs, strict=True)]),
            **passed_on,
        },
        meta_info={SAMPLING_KEY: sampling, DEADLINE_KEY: deadline_s},
    )


def _objects(values: Sequence[Any]) -> np.ndarray:
    """An object column, also where all values are lists of one length."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def reports_of(outputs: DataProto) -> list[dict[str, Metric]]:
    """What workers reported with ``outputs``, taken out of it; ``DataProto.concat`` makes a list for each name."""
    metrics = outputs.meta_info.pop(METRICS_KEY, {})
    return [{name: metric} for name, reported in metrics.items() for metric in reported]
