"""The synchronous sampler: submit a step's prompts, wait for all of them, count what failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rl_dataproto import DataProto, jagged_from_rows, lengths

from rl_core.contracts.rollout import SamplingParams
from rl_core.contracts.sampler import GroupStatus, PromptGroup, Sampler
from rl_core.data.prompts import PASSED_ON
from rl_core.errors import MissingRolloutError, ShapeError
from rl_core.metrics import Metric, merge_metrics
from rl_core.trainer.ppo.seeding import group_uid, request_seed
from rl_core.workers.generation import DEADLINE_KEY, EXTRAS_KEY, SAMPLING_KEY

if TYPE_CHECKING:
    from rl_core.config import PPOTrainerConfig
    from rl_core.data.loader import PromptLoader

from rl_core.trainer.ppo.step import METRICS_KEY


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

    def next(self) -> DataProto:
        """See ``Sampler``."""
        items = self._loader.next()
        prompts = make_prompts(
            items,
            step=self._step,
            seed=self._config.trainer.seed,
            num_samples=self._config.actor_rollout_ref.rollout.n,
            sampling=training_sampling(self._config),
            deadline_s=self._config.trainer.rollout_deadline_s,
        )
        self._step += 1
        self.groups = [PromptGroup(uid=uid, size=0) for uid in dict.fromkeys(prompts.non_tensor_batch["uid"])]
        for group in self.groups:
            group.size = int((prompts.non_tensor_batch["uid"] == group.uid).sum())
            group.status = GroupStatus.RUNNING
        outputs = self._generate(prompts)
        return self._finished(prompts, outputs)

    def _finished(self, prompts: DataProto, outputs: DataProto) -> DataProto:
        metrics = merge_metrics(_reports(outputs.meta_info.pop(METRICS_KEY, {})))
        errors = outputs.non_tensor_batch["rollout_error"]
        for group in self.groups:
            mine = [
                error for uid, error in zip(prompts.non_tensor_batch["uid"], errors, strict=True) if uid == group.uid
            ]
            group.errors = tuple(error for error in mine if error is not None)
            group.num_failed = len(group.errors)
            group.status = GroupStatus.FAILED if group.num_failed == group.size else GroupStatus.FINISHED
        kept = np.array([row for row, error in enumerate(errors) if error is None], dtype=np.int64)
        self._check_failures(len(errors) - len(kept), len(errors))
        for key in (SAMPLING_KEY, DEADLINE_KEY):
            prompts.meta_info.pop(key)
        batch = prompts.select_idxs(kept).union(extras_as_columns(outputs.select_idxs(kept)))
        metrics |= {
            "rollout/failed": Metric(len(errors) - len(kept), "sum"),
            "rollout/failed_groups": Metric(sum(group.status is GroupStatus.FAILED for group in self.groups), "sum"),
        }
        batch.meta_info[METRICS_KEY] = metrics
        return batch

    def _check_failures(self, num_failed: int, num_rows: int) -> None:
        limit = self._config.trainer.max_failed_rollout_fraction
        if num_failed <= limit * num_rows and num_failed < num_rows:
            return
        reasons = [f"{group.uid}: {error}" for group in self.groups for error in group.errors]
        msg = (
            f"{num_failed} of {num_rows} rollouts failed (trainer.max_failed_rollout_fraction is {limit}). "
            f"First reasons: {'; '.join(reasons[:3])}"
        )
        raise MissingRolloutError(msg)

    def state_dict(self) -> dict[str, Any]:
        """See ``Stateful``."""
        return {"step": self._step, "loader": self._loader.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See ``Stateful``."""
        self._step = state["step"]
        self._loader.load_state_dict(state["loader"])


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
) -> DataProto:
    """One row for each response to be drawn, rows of one prompt side by side.

    Args:
        items: rows of a ``PromptDataset``.
        step: number of the step; with ``seed``, row and sample it determines uids and request seeds.
        seed: of the run.
        num_samples: responses to each prompt.
        sampling: how to draw.
        deadline_s: seconds that one response may take.

    Returns:
        Jagged int64 ``prompts``, int64 ``seed``; object ``uid``, ``request_id``, ``raw_prompt`` and the columns passed on.
    """
    pairs = [(row, sample) for row in range(len(items)) for sample in range(num_samples)]
    uids = [group_uid(step, row) for row, _ in pairs]
    passed_on = {name: _objects([items[row].get(name) for row, _ in pairs]) for name in ("raw_prompt", *PASSED_ON)}
    return DataProto.from_dict(
        tensors={
            "prompts": jagged_from_rows(
                [torch.tensor(items[row]["prompt_ids"], dtype=torch.int64) for row, _ in pairs]
            ),
            "seed": torch.tensor([request_seed(seed, step, row, sample) for row, sample in pairs], dtype=torch.int64),
        },
        non_tensors={
            "uid": _objects(uids),
            "request_id": _objects([f"{uid}-{sample}" for uid, (_, sample) in zip(uids, pairs, strict=True)]),
            **passed_on,
        },
        meta_info={SAMPLING_KEY: sampling, DEADLINE_KEY: deadline_s},
    )


def _objects(values: Sequence[Any]) -> np.ndarray:
    """An object column, also where all values are lists of one length."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def _reports(metrics: Mapping[str, Sequence[Metric]]) -> list[dict[str, Metric]]:
    """Metrics of several workers as ``DataProto.concat`` joins them: a list for each name."""
    return [{name: metric} for name, reported in metrics.items() for metric in reported]
