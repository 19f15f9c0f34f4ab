"""What critic, reference and reward model ask of the backend that each of them has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rl_core.config.capabilities import Need, above, unmet_needs
from rl_core.config.roles import needs_critic, needs_reference

if TYPE_CHECKING:
    from rl_core.config.compose import Config
    from rl_core.config.model import ModelConfig
    from rl_core.plugins import Registry

_ACTOR: Final = "actor_rollout_ref.actor"
_REF: Final = "actor_rollout_ref.ref"
_SIZE: Final = "ulysses_sequence_parallel_size"


@dataclass(frozen=True)
class RoleNeeds:
    """What one role asks of its backend."""

    strategy: str
    """Key that names the backend; where it names none, the actor's."""
    is_on: Callable[[Any], bool]
    needs: tuple[Need, ...]


def _reference_size(tree: Any) -> float | None:
    """Of a reference that does not just follow the actor, which is asked already."""
    actor, ref = tree.actor_rollout_ref.actor, tree.actor_rollout_ref.ref
    follows = ref.ulysses_sequence_parallel_size == actor.ulysses_sequence_parallel_size
    return None if follows and ref.strategy in (None, actor.strategy) else above(ref.ulysses_sequence_parallel_size, 1)


ROLE_NEEDS: Final = (
    RoleNeeds(
        f"{_REF}.strategy", needs_reference, (Need("backend", "sequence_parallel", f"{_REF}.{_SIZE}", _reference_size),)
    ),
    RoleNeeds(
        "critic.strategy",
        needs_critic,
        (
            Need(
                "backend",
                "sequence_parallel",
                f"critic.{_SIZE}",
                lambda tree: above(tree.critic.ulysses_sequence_parallel_size, 1),
            ),
            Need("backend", "lora", "critic.model.lora_rank", lambda tree: above(tree.critic.model.lora_rank, 0)),
        ),
    ),
    RoleNeeds(
        "reward_model.strategy",
        lambda tree: bool(tree.reward_model.enable),
        (
            Need(
                "backend",
                "sequence_parallel",
                f"reward_model.{_SIZE}",
                lambda tree: above(tree.reward_model.ulysses_sequence_parallel_size, 1),
            ),
        ),
    ),
)


def role_errors(config: Config, registry: Registry) -> Iterator[str]:
    """One message for each thing that a role of the run asks for and its backend cannot do."""
    for role in ROLE_NEEDS:
        record = config.records.get(role.strategy) or config.records.get(f"{_ACTOR}.strategy")
        if record is not None and role.is_on(config.tree):
            yield from unmet_needs(role.needs, {"backend": record}, config.tree, registry)


def adapter_errors(model: ModelConfig, section: str) -> Iterator[str]:
    """An adapter to start from, in a run that trains none."""
    if model.lora_adapter_path and not model.lora_rank:
        yield (
            f"{section}.lora_adapter_path is {model.lora_adapter_path}, but {section}.lora_rank is 0, which trains all weights "
            f"of the base model without it. Set {section}.lora_rank to the rank of that adapter."
        )
