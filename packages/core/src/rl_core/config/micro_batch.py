"""Micro-batch sizes given over all workers, turned into sizes per worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    from omegaconf import DictConfig

GLOBAL_KEYS: Final[tuple[tuple[str, str], ...]] = (
    ("actor_rollout_ref.actor", "ppo_micro_batch_size"),
    ("actor_rollout_ref.rollout", "log_prob_micro_batch_size"),
    ("actor_rollout_ref.ref", "log_prob_micro_batch_size"),
    ("critic", "ppo_micro_batch_size"),
    ("critic", "forward_micro_batch_size"),
    ("reward_model", "micro_batch_size"),
)
"""Section and key of each size over all workers; ``_per_gpu`` appended is the size on one."""


@runtime_checkable
class SlicesModel(Protocol):
    """A plugin's section that says how its engine slices a model over workers (tensor times pipeline, for example)."""

    def model_parallel_size(self, num_workers: int) -> int:
        """Workers that share one sequence, out of ``num_workers`` of the role."""
        ...


def model_parallel_size(section: Any, num_workers: int) -> int:
    """Workers that share one sequence in a role: sequence-parallel times what the plugin's section says.

    Args:
        section: the role's section of the typed tree, plugin sections hanging on it.
        num_workers: workers of the role.
    """
    size = int(getattr(section, "ulysses_sequence_parallel_size", None) or 1)
    for value in vars(section).values():
        if isinstance(value, SlicesModel):
            size *= value.model_parallel_size(num_workers)
    return size


def per_worker_micro_batches(raw: DictConfig) -> list[str]:
    """Fill in sizes per worker from sizes over all workers, in place.

    Returns:
        One message for each size that does not divide by the data-parallel width, or that is given both ways.
    """
    from omegaconf import OmegaConf  # noqa: PLC0415 - loaded only to compose

    errors = []
    for section, key in GLOBAL_KEYS:
        node = OmegaConf.select(raw, section)
        total, each = node[key], node[f"{key}_per_gpu"]
        if total is None:
            continue
        if each is not None:
            errors.append(
                f"{section}.{key} ({total}) and {section}.{key}_per_gpu ({each}) are both given. Keep the second: "
                "it does not change its meaning with the number of workers."
            )
            continue
        workers = _data_parallel_workers(raw, section)
        if total % workers or total < workers:
            errors.append(
                f"{section}.{key} ({total}) is not a multiple of the {workers} data-parallel workers. "
                f"Give {section}.{key}_per_gpu."
            )
            continue
        node[f"{key}_per_gpu"] = total // workers
    return errors


def _data_parallel_workers(raw: DictConfig, section: str) -> int:
    from omegaconf import OmegaConf  # noqa: PLC0415 - loaded only to compose

    # The rollout section's passes run on the actor's engine.
    role = "actor_rollout_ref.actor" if section.endswith(".rollout") else section
    world_size: int = raw.trainer.nnodes * raw.trainer.n_gpus_per_node
    section_object = OmegaConf.to_object(OmegaConf.select(raw, role))
    return max(1, world_size // model_parallel_size(section_object, world_size))
