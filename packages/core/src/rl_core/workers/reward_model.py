"""The reward model worker: a learned scorer, for runs that have one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from rl_dataproto import DataProto, jagged_from_rows
from rl_dataproto.jagged import Jagged

from rl_core.config import ModelConfig
from rl_core.data.reward_text import JudgedIds, RewardText
from rl_core.data.tokenizer import model_tokenizer
from rl_core.plugins import get_registry
from rl_core.single_controller.base import Dispatch, WorkerContext, register
from rl_core.single_controller.base.mesh import make_nd_compute_dataproto_dispatch_fn
from rl_core.workers.build import build_reward_model
from rl_core.workers.engine_worker import EngineWorker
from rl_core.workers.phases import Part, Phase

if TYPE_CHECKING:
    from rl_core.config import PPOTrainerConfig

RM_SCORES: Final = "rm_scores"
"""Jagged column: a reward model's scores."""

RM_TRUNCATED: Final = "rm_truncated"
"""Bool column [B]: the reward model read the conversation without its beginning. Only where there is a limit."""


class RewardModelWorker(EngineWorker):
    """One process of the reward model group."""

    def __init__(
        self, context: WorkerContext, config: PPOTrainerConfig, *, total_training_steps: int | None = None
    ) -> None:
        """Build the engine; nothing is allocated before ``init_model``. It is not trained, for any number of steps."""
        engine = build_reward_model(config, context, get_registry())
        super().__init__(
            context,
            engine,
            "reward_model",
            Part.REWARD_MODEL,
            profiler=config.global_profiler,
            role=config.reward_model.profiler,
        )
        self._config = config

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        """Load the weights, and both tokenizers."""
        super().init_model()
        self._text = reward_text(self._config)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("reward_model"))
    def compute_rm_score(self, batch: DataProto) -> DataProto | None:
        """The score of each conversation, as the reward model reads it; see ``rl_core.data.reward_text``.

        Args:
            batch: jagged ``input_ids`` and ``responses``; object ``raw_prompt`` where conversations are written anew.

        Returns:
            ``rm_scores``, jagged like ``responses``: the score on the last response token, 0.0 before it; and with a limit of
            ``reward_model.max_length`` bool ``rm_truncated``.
        """
        judged = self._judged(batch)
        with self.phases.during(Phase.REWARD_MODEL):
            result = self.engine.forward(_as_rows(judged), {"values"})
        if result is None:
            return None
        scores = Jagged.of(result.batch["values"]).values
        rows = []
        for score, response in zip(scores, Jagged.of(batch.batch["responses"]).rows(), strict=True):
            row = torch.zeros(len(response), dtype=scores.dtype)
            row[-1:] = score
            rows.append(row)
        columns = {RM_SCORES: jagged_from_rows(rows, scores.dtype)}
        if self._config.reward_model.max_length is not None:
            columns[RM_TRUNCATED] = torch.tensor([item.is_cut for item in judged], dtype=torch.bool)
        return DataProto.from_dict(tensors=columns)

    def _judged(self, batch: DataProto) -> list[JudgedIds]:
        ids, responses = (Jagged.of(batch.batch[name]).rows() for name in ("input_ids", "responses"))
        prompts = batch.non_tensor_batch.get("raw_prompt", [None] * len(batch))
        return [
            self._text.read(prompt, whole[: len(whole) - len(response)].tolist(), response.tolist())
            for prompt, whole, response in zip(prompts, ids, responses, strict=True)
        ]


def reward_text(config: PPOTrainerConfig) -> RewardText:
    """How the run's reward model reads the policy's responses.

    Raises:
        ConfigError: a tokenizer is missing.
    """
    policy, section = config.actor_rollout_ref.model, config.reward_model
    scorer = ModelConfig(path=section.model.path, trust_remote_code=bool(section.model.trust_remote_code))
    strategy = config.actor_rollout_ref.actor.strategy
    written_by = model_tokenizer(
        policy,
        strategy,
        get_registry(),
        path=section.model.input_tokenizer or config.data.tokenizer or policy.tokenizer_path or policy.path,
        section="actor_rollout_ref.model",
    )
    read_by = model_tokenizer(
        scorer,
        section.strategy or strategy,
        get_registry(),
        path=section.model.tokenizer_path or section.model.path,
        section="reward_model.model",
    )
    return RewardText(written_by, read_by, section.max_length)


def _as_rows(judged: list[JudgedIds]) -> DataProto:
    """Conversations as an engine takes them, each with its last token as its response: its score is all that is asked."""
    rows = [torch.tensor(item.ids, dtype=torch.int64) for item in judged]
    ends = [row[-1:] for row in rows]
    return DataProto.from_dict(
        tensors={"input_ids": jagged_from_rows(rows, torch.int64), "responses": jagged_from_rows(ends, torch.int64)}
    )
