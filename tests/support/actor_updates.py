"""An update of an actor on a real engine, cut and dispatched as a run does it, without the run around it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from rl_core.config.actor import ActorConfig, PolicyLossConfig
from rl_core.contracts.engine import TrainingEngine
from rl_core.contracts.mini_batch import PLAN_KEY
from rl_core.metrics import Metric
from rl_core.plugins import get_registry
from rl_core.trainer.ppo.metrics import trained_tokens
from rl_core.trainer.ppo.mini_batch_plan import plan_mini_batches
from rl_core.trainer.ppo.prepare_loss import prepare_policy_loss
from rl_core.workers.losses import PolicyLoss
from rl_core.workers.update import run_updates
from rl_dataproto import DataProto, jagged_from_rows
from torch import Tensor

LENGTHS = [(2, 3), (1, 7), (4, 1), (3, 4), (2, 5), (5, 2), (1, 6), (2, 1), (3, 3), (1, 2), (2, 6), (4, 4)]
"""Prompt and response of each row; two rows a prompt."""

MASKED_ROW = 3
"""No token of it is trained."""


def make_batch(vocab_size: int) -> DataProto:
    """Twelve rows of different lengths, holes in their masks; still without old log-probs."""
    draw = torch.Generator().manual_seed(0)
    rows: dict[str, list[Tensor]] = {
        name: [] for name in ("input_ids", "responses", "response_mask", "advantages", "rollout_is_weights")
    }
    for number, (prompt, response) in enumerate(LENGTHS):
        ids = torch.randint(vocab_size, (prompt + response,), generator=draw)
        mask = torch.rand(response, generator=draw) < 0.8
        mask[-1:] = True
        rows["input_ids"].append(ids)
        rows["responses"].append(ids[prompt:])
        rows["response_mask"].append(mask & (number != MASKED_ROW))
        rows["advantages"].append(torch.randn(1, generator=draw).expand(response).clone())
        rows["rollout_is_weights"].append(torch.rand(response, generator=draw) + 0.5)
    return DataProto.from_dict(
        tensors={name: jagged_from_rows(column) for name, column in rows.items()},
        non_tensors={"uid": np.array([f"prompt {number // 2}" for number in range(len(LENGTHS))], dtype=object)},
    )


def with_old_log_probs(batch: DataProto, log_probs: list[Tensor]) -> DataProto:
    """As of another policy than the one in training, so that ratios lie on both sides of every bound."""
    draw = torch.Generator().manual_seed(1)
    old = [row - 0.3 * torch.randn(row.shape, generator=draw) for row in log_probs]
    return batch.select().union(DataProto.from_dict(tensors={"old_log_probs": jagged_from_rows(old)}))


def actor_config(loss_mode: str, loss_agg_mode: str) -> ActorConfig:
    """Two epochs of mini-batches of three prompts; an entropy bonus; shares large enough to choose some tokens."""
    settings = PolicyLossConfig(loss_mode=loss_mode, clip_cov_ratio=0.2, clip_cov_lb=-9.0, clip_cov_ub=9.0)
    settings = replace(settings, kl_cov_ratio=0.2, ppo_kl_coef=0.5, dro_beta=0.5)
    return ActorConfig(
        policy_loss=settings,
        loss_agg_mode=loss_agg_mode,
        ppo_mini_batch_size=3,
        ppo_epochs=2,
        shuffle=True,
        entropy_coeff=0.01,
    )


def planned(batch: DataProto, actor: ActorConfig) -> DataProto:
    """What the controller sends: the choice of tokens, where the loss makes one, and the optimizer steps."""
    batch = prepare_policy_loss(batch, actor, (0, 1), get_registry()).select()
    batch.meta_info[PLAN_KEY] = plan_mini_batches(
        batch.non_tensor_batch["uid"],
        trained_tokens(batch),
        mini_batch_size=actor.ppo_mini_batch_size,
        epochs=actor.ppo_epochs,
        shuffle=actor.shuffle,
        seed=(actor.data_loader_seed, 1),
        max_response_length=8,
    )
    return batch


def update(engine: TrainingEngine, *, batch: DataProto, actor: ActorConfig) -> dict[str, Metric] | None:
    """This rank's part of ``update_actor``: its rows and its plan, then every optimizer step."""
    info = engine.dispatch_info()
    rows, plan = batch.meta_info[PLAN_KEY].split(info.dp_size)[info.dp_rank]
    registry: Any = get_registry()
    report = run_updates(
        engine, batch.select_idxs(rows), plan, lambda totals: PolicyLoss(actor, totals, registry), prefix="actor"
    )
    return report.metrics if info.is_collect else None
