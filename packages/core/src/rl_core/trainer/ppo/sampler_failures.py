"""What a sampler does with responses that never came: name the prompts, count the reasons, stop above the limit."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rl_core.contracts.sampler import FailureKind, GroupStatus, PromptGroup
from rl_core.errors import MissingRolloutError
from rl_core.metrics import Metric

if TYPE_CHECKING:
    from rl_core.config import PPOTrainerConfig

_log = logging.getLogger(__name__)

_NAMED_PROMPTS = 8
_NAMES = {FailureKind.LOST: "lost", FailureKind.ERROR: "errors", FailureKind.MALFORMED: "malformed"}


def settle_group(group: PromptGroup, failures: Sequence[tuple[str, str | None]]) -> None:
    """Write into ``group`` how it ended, once nothing more will come for it.

    Args:
        group: its ``size`` is known.
        failures: error and ``FailureKind`` of each response that failed; an error without a kind is one of the engine.
    """
    group.errors = tuple(error for error, _ in failures)
    group.kinds = tuple(FailureKind.ERROR if kind is None else FailureKind(kind) for _, kind in failures)
    group.num_failed = len(failures)
    group.status = GroupStatus.FAILED if group.num_failed == group.size else GroupStatus.FINISHED


def report_failures(groups: Iterable[PromptGroup]) -> None:
    """One line in the log for each prompt that lacks responses."""
    lacking = [group for group in groups if group.num_failed]
    for group in lacking[:_NAMED_PROMPTS]:
        first = "; ".join(
            f"{kind}: {error}" for kind, error in dict.fromkeys(zip(group.kinds, group.errors, strict=True))
        )
        _log.warning(
            "prompt %s: %d of %d responses are missing (%s)", group.uid, group.num_failed, group.size, first[:500]
        )
    if len(lacking) > _NAMED_PROMPTS:
        _log.warning("and %d more prompts lack responses", len(lacking) - _NAMED_PROMPTS)


def failure_metrics(groups: Sequence[PromptGroup]) -> dict[str, Metric]:
    """Missing responses in all and by kind, and prompts without any response."""
    kinds = [kind for group in groups for kind in group.kinds]
    return {
        "rollout/failed": Metric(len(kinds), "sum"),
        **{f"rollout/{name}": Metric(kinds.count(kind), "sum") for kind, name in _NAMES.items()},
        "rollout/failed_groups": Metric(sum(group.status is GroupStatus.FAILED for group in groups), "sum"),
    }


def require_rollouts(config: PPOTrainerConfig, groups: Sequence[PromptGroup]) -> None:
    """Stop a batch that lacks too much.

    Raises:
        MissingRolloutError: more than ``trainer.max_failed_rollout_fraction`` of its responses failed, or all.
    """
    limit = config.trainer.max_failed_rollout_fraction
    num_failed, num_rows = sum(group.num_failed for group in groups), sum(group.size for group in groups)
    if num_failed <= limit * num_rows and num_failed < num_rows:
        return
    reasons = [f"{group.uid}: {error}" for group in groups for error in group.errors]
    msg = (
        f"{num_failed} of {num_rows} rollouts failed (trainer.max_failed_rollout_fraction is {limit}). "
        f"First reasons: {'; '.join(reasons[:3])}"
    )
    raise MissingRolloutError(msg)
