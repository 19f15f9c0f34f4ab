"""Generator against trainer without training: hand weights over once, sample, re-score, and look at what differs."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from rl_dataproto import DataProto

from rl_core.data.build import train_prompts
from rl_core.errors import ConfigError, MissingRolloutError
from rl_core.runtime.choose import choose_runtime
from rl_core.trainer.evaluation.run import load_weights
from rl_core.trainer.placement import start_workers
from rl_core.trainer.ppo.parity_causes import NEGLIGIBLE, Cause, Setting
from rl_core.trainer.ppo.parity_report import ParityReport, parity_report
from rl_core.trainer.ppo.parity_stats import GAP_MEAN, Part
from rl_core.trainer.ppo.sampler import make_prompts, training_sampling
from rl_core.workers.roles import Role
from rl_core.workers.rollout_rows import ERROR_KEY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from rl_core.config import PPOTrainerConfig
    from rl_core.plugins import Registry
    from rl_core.trainer.checkpoint import Checkpoint

ROWS_ALONE: Final = 4
"""Responses that both sides score a second time, each in a pass of its own."""
_TEXTS: Final = (
    "The capital of France is",
    "Question: a train leaves at 9:40 and arrives at 13:05. How long does it take? Answer:",
    "def fibonacci(n):",
    "Once upon a time there was a small house at the edge of the forest, and in it lived",
    "1, 1, 2, 3, 5, 8,",
    "Write a poem about rain.",
    "x + 3 = 7, so x =",
    "List three reasons why the sea is salty. First,",
)


@dataclass(frozen=True, slots=True)
class ParityResult:
    """What came of a check.

    Attributes:
        report: of the responses.
        again: gap of each side to itself, on some responses alone.
        num_responses: responses that were compared.
        errors: why others did not come.
    """

    report: ParityReport
    again: Sequence[Part]
    num_responses: int
    errors: Sequence[str]

    @property
    def gap(self) -> float:
        """Mean absolute difference of the log-probs, in nats."""
        return self.report.metrics[GAP_MEAN]


class ParityRun:
    """One check of one configuration."""

    def __init__(
        self, config: PPOTrainerConfig, checkpoint: Checkpoint | None, tokenizer: Any, registry: Registry
    ) -> None:
        """Store the arguments; no worker is started.

        Args:
            config: of the run that is to be checked.
            checkpoint: whose weights are compared; None leaves those of ``model.path``.
            tokenizer: of the policy.
            registry: finds engines by name.

        Raises:
            ConfigError: the runtime cannot be had.
        """
        self.config = config
        self.checkpoint = checkpoint
        self.tokenizer = tokenizer
        self._runtime = choose_runtime(config, registry)

    def run(self, items: Sequence[dict[str, Any]], max_tokens: int) -> ParityResult:
        """Start the workers, answer each of ``items`` once with at most ``max_tokens`` tokens, and re-score.

        Args:
            items: rows with ``prompt_ids``, from ``file_prompts`` or ``own_prompts``.
            max_tokens: longest response; the configuration's where that is shorter.

        Raises:
            ConfigError: the generator reports no log-probs.
            MissingRolloutError: no response came.
        """
        with ExitStack() as stack:
            stack.callback(self._runtime.shutdown)
            length = self.config.trainer.total_training_steps or 1
            groups = start_workers(self._runtime, self.config, [Role.ActorRolloutRef], total_training_steps=length)
            policy = groups[Role.ActorRolloutRef]
            load_weights(policy, self.checkpoint, self.config)
            prompts = self._prompts(items, max_tokens)
            batch, kept, errors = _generated(policy, prompts)
            scored = policy.compute_log_prob(batch).select(meta_info_keys=[])
            batch = batch.union(scored)
            rows = range(min(ROWS_ALONE, len(batch)))
            again = [
                _trainer_again(policy, batch, rows),
                _generator_again(policy, prompts.select_idxs(kept), batch, rows),
            ]
        report = parity_report(batch, Setting.of(self.config), self.tokenizer, self.config.trainer.parity.outliers)
        if report is None:
            msg = "the responses hold no token, so there is nothing to compare. Give other prompts, or more tokens."
            raise MissingRolloutError(msg)
        parts = [part for part in again if part is not None]
        found = kernel_cause(report.metrics[GAP_MEAN], parts)
        return ParityResult(report if found is None else replace(report, cause=found), parts, len(batch), errors)

    def _prompts(self, items: Sequence[dict[str, Any]], max_tokens: int) -> DataProto:
        sampling = training_sampling(self.config)
        return make_prompts(
            items,
            step=0,
            seed=self.config.trainer.seed,
            num_samples=1,
            sampling=replace(sampling, max_tokens=min(sampling.max_tokens, max_tokens)),
            deadline_s=self.config.trainer.rollout_deadline_s,
        )


def file_prompts(config: PPOTrainerConfig, tokenizer: Any, count: int) -> list[dict[str, Any]]:
    """The first ``count`` training prompts of the configuration.

    Raises:
        ConfigError: the class of ``data.custom_cls`` cannot be used.
        DataError: a row cannot be used.
    """
    dataset = train_prompts(config.data, tokenizer)
    return [dataset[index] for index in range(min(count, len(dataset)))]


def own_prompts(config: PPOTrainerConfig, tokenizer: Any, count: int) -> list[dict[str, Any]]:
    """``count`` prompts of different lengths that need no file, cut to ``data.max_prompt_length``."""
    longest = config.data.max_prompt_length
    texts = [_TEXTS[row % len(_TEXTS)] + f" {row}" * (row // len(_TEXTS)) for row in range(count)]
    return [{"prompt_ids": list(tokenizer.encode(text))[:longest], "raw_prompt": text} for text in texts]


def kernel_cause(gap: float, again: Sequence[Part]) -> Cause | None:
    """The cause when one side is as far from itself as from the other: what else is in a pass changes its numbers."""
    worst = max(again, key=lambda part: part.mean, default=None)
    if worst is None or worst.mean <= NEGLIGIBLE or worst.mean < 0.5 * gap:
        return None
    return Cause(
        "kernels",
        f"{worst.what}: the same tokens get log-probs that differ by {worst.mean:.3g} nats on average from those of the whole "
        f"batch; the gap between the two sides is {gap:.3g}",
        "Its numbers depend on what else is in the pass: packed rows that see each other, padding that is attended to, or "
        "kernels that sum in another order for another shape. In bfloat16 the last is normal; above 0.01 look for the first "
        "two (use_remove_padding, the attention implementation).",
    )


def _generated(policy: Any, prompts: DataProto) -> tuple[DataProto, np.ndarray, list[str]]:
    """(responses with the columns of their prompts, their rows, why others did not come)."""
    outputs = policy.generate_sequences(prompts)
    errors = outputs.non_tensor_batch[ERROR_KEY]
    kept = np.array([row for row, error in enumerate(errors) if error is None], dtype=np.int64)
    reasons = [str(error) for error in errors if error is not None]
    if not len(kept):
        msg = f"none of {len(errors)} responses came; the first reason: {reasons[0]}"
        raise MissingRolloutError(msg)
    if "rollout_log_probs" not in outputs.batch.keys():  # noqa: SIM118 - a TensorDict
        msg = (
            "the generator reports no log-probs, so there is nothing to compare. Take a rollout that does, with "
            "actor_rollout_ref.rollout.calculate_log_probs=true."
        )
        raise ConfigError(msg)
    answers = outputs.select_idxs(kept).select(meta_info_keys=[])
    return prompts.select_idxs(kept).select(meta_info_keys=[]).union(answers), kept, reasons


def _trainer_again(policy: Any, batch: DataProto, rows: range) -> Part | None:
    """The training engine against itself, with each row in a pass of its own: neither packed nor padded."""
    names = ["input_ids", "responses", "response_mask"]
    columns = batch.batch["old_log_probs"].unbind()
    gaps = []
    for row in rows:
        alone = policy.compute_log_prob(batch.select_idxs([row]).select(names, []))
        gaps.append((alone.batch["old_log_probs"].unbind()[0].double() - columns[row].double()).abs())
    return _part("trainer again, rows alone", gaps)


def _generator_again(policy: Any, prompts: DataProto, batch: DataProto, rows: range) -> Part | None:
    """The generator against itself: the same seeds without neighbours, as far as the same tokens come."""
    tokens, columns = batch.batch["responses"].unbind(), batch.batch["rollout_log_probs"].unbind()
    gaps = []
    for row in rows:
        alone = policy.generate_sequences(prompts.select_idxs([row]))
        if alone.non_tensor_batch[ERROR_KEY][0] is not None:
            continue
        length = common_length(alone.batch["responses"].unbind()[0], tokens[row])
        found = alone.batch["rollout_log_probs"].unbind()[0][:length]
        gaps.append((found.double() - columns[row][:length].double()).abs())
    return _part("generator again, rows alone", gaps)


def common_length(one: Tensor, other: Tensor) -> int:
    """How many tokens two responses begin with in common."""
    size = min(len(one), len(other))
    differs = (one[:size] != other[:size]).nonzero().flatten()
    return int(differs[0]) if len(differs) else size


def _part(what: str, gaps: Sequence[Tensor]) -> Part | None:
    everything = torch.cat([*gaps]) if gaps else torch.empty(0)
    if not len(everything):
        return None
    return Part(what, len(everything), float(everything.mean()), float(everything.max()))
