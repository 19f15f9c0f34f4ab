"""Batch arithmetic: from prompts to responses, mini-batches, optimizer steps and passes. Pure functions of the tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rl_core.config.micro_batch import model_parallel_size
from rl_core.config.schedule import drops_groups, generation_prompts
from rl_core.errors import ConfigError

if TYPE_CHECKING:
    from rl_core.config.actor import ActorConfig
    from rl_core.config.critic import CriticConfig
    from rl_core.config.root import PPOTrainerConfig

Role = Literal["actor", "critic"]

_SECTIONS: dict[str, str] = {"actor": "actor_rollout_ref.actor", "critic": "critic"}


@dataclass(frozen=True)
class UpdateArithmetic:
    """How one role's update of one step is cut."""

    role: Role
    workers: int
    """Worker processes of the role."""

    dp_size: int
    """Data-parallel width: workers that each take other responses."""

    mini_batch_prompts: int
    """Prompts of one optimizer step."""

    mini_batch_responses: int
    """Responses of one optimizer step: prompts times ``rollout.n``."""

    mini_batches: int
    """Mini-batches in one pass over the step's responses."""

    epochs: int
    """Passes over the step's responses."""

    micro_batch: int | None
    """Responses of one forward and backward pass on one worker; None when passes are packed by tokens."""

    max_tokens: int | None
    """Tokens of one pass on one worker; None when passes are cut by responses."""

    @property
    def optimizer_steps(self) -> int:
        """Optimizer steps of one training step."""
        return self.mini_batches * self.epochs

    @property
    def responses_per_worker(self) -> int:
        """Most responses of one mini-batch on one worker."""
        return -(-self.mini_batch_responses // self.dp_size)

    @property
    def is_even(self) -> bool:
        """Whether every worker gets equally many responses of each mini-batch."""
        return self.mini_batch_responses % self.dp_size == 0

    @property
    def micro_batches(self) -> int | None:
        """Passes per mini-batch on one worker, whose gradients add up; None when packed by tokens."""
        return None if self.micro_batch is None else -(-self.responses_per_worker // self.micro_batch)


@dataclass(frozen=True)
class BatchArithmetic:
    """The three batch sizes of a run, worked out."""

    prompts: int
    """``data.train_batch_size``: prompts per step."""

    generation: int | None
    """``data.gen_batch_size``: prompts of one of the generations of a step; None without dynamic sampling."""

    n: int
    """``rollout.n``: responses per prompt."""

    actor: UpdateArithmetic
    critic: UpdateArithmetic | None
    """None without a value function."""

    @property
    def responses(self) -> int:
        """Responses per step."""
        return self.prompts * self.n


def batch_plan(tree: PPOTrainerConfig, world_size: int) -> BatchArithmetic:
    """Work the batch sizes out.

    Args:
        tree: composed configuration.
        world_size: workers of the shared pool; a critic with a pool of its own has its own number.

    Raises:
        ConfigError: sizes do not divide; names the keys and the numbers.
    """
    errors = batch_errors(tree, world_size)
    if errors:
        raise ConfigError("\n".join(errors))
    critic = update_arithmetic(tree, "critic", world_size) if tree.critic.enable else None
    return BatchArithmetic(
        prompts=tree.data.train_batch_size,
        generation=generation_prompts(tree) if drops_groups(tree) else None,
        n=tree.actor_rollout_ref.rollout.n,
        actor=update_arithmetic(tree, "actor", world_size),
        critic=critic,
    )


def update_arithmetic(tree: PPOTrainerConfig, role: Role, world_size: int) -> UpdateArithmetic:
    """The numbers of one role, whether they fit together or not."""
    section: ActorConfig | CriticConfig = tree.actor_rollout_ref.actor if role == "actor" else tree.critic
    workers = role_workers(tree, role, world_size)
    prompts = section.ppo_mini_batch_size or tree.actor_rollout_ref.actor.ppo_mini_batch_size
    return UpdateArithmetic(
        role=role,
        workers=workers,
        dp_size=max(1, workers // model_parallel_size(section, workers)),
        mini_batch_prompts=prompts,
        mini_batch_responses=prompts * tree.actor_rollout_ref.rollout.n,
        mini_batches=tree.data.train_batch_size // prompts,
        epochs=section.ppo_epochs or tree.actor_rollout_ref.actor.ppo_epochs,
        micro_batch=None if section.use_dynamic_bsz else section.ppo_micro_batch_size_per_gpu,
        max_tokens=section.ppo_max_token_len_per_gpu if section.use_dynamic_bsz else None,
    )


def role_workers(tree: PPOTrainerConfig, role: Role, world_size: int) -> int:
    """Workers of a role: those of the shared pool, or of its own."""
    if role == "critic" and tree.critic.enable_resource_pool:
        return tree.critic.nnodes * tree.critic.n_gpus_per_node
    return world_size


def batch_errors(tree: PPOTrainerConfig, world_size: int) -> list[str]:
    """Everything that does not divide, one message each; empty when the sizes fit together."""
    roles: tuple[Role, ...] = ("actor", "critic") if tree.critic.enable else ("actor",)
    return [error for role in roles for error in _role_errors(tree, role, world_size)]


def _role_errors(tree: PPOTrainerConfig, role: Role, world_size: int) -> list[str]:
    section = tree.actor_rollout_ref.actor if role == "actor" else tree.critic
    path, n = _SECTIONS[role], tree.actor_rollout_ref.rollout.n
    sizes = update_arithmetic(tree, role, world_size)
    slices = model_parallel_size(section, sizes.workers)
    if sizes.workers < 1 or sizes.workers % slices:
        return [f"{sizes.workers} workers of the {role} cannot be cut into groups of {slices} that share one sequence."]
    errors = step_errors(tree.data.train_batch_size, sizes.mini_batch_prompts, path)
    product = f"{path}.ppo_mini_batch_size ({sizes.mini_batch_prompts}) x rollout.n ({n})"
    if sizes.mini_batch_responses < sizes.dp_size:
        errors.append(
            f"{product} = {sizes.mini_batch_responses} responses for {sizes.dp_size} data-parallel workers: "
            f"{sizes.mini_batch_prompts}·{n}/{sizes.dp_size} = 0 per worker. Use at least {sizes.dp_size} responses "
            "per mini-batch, or fewer workers."
        )
        return errors
    if section.use_dynamic_bsz:
        return errors
    if sizes.micro_batch is None:
        errors.append(
            f"{path}.use_dynamic_bsz is false and no micro-batch size is given. Set "
            f"{path}.ppo_micro_batch_size_per_gpu, or leave use_dynamic_bsz out to pack passes by tokens."
        )
        return errors
    return errors + _pass_errors(sizes, product, f"{path}.ppo_micro_batch_size_per_gpu ({sizes.micro_batch})")


def step_errors(prompts: int, mini_batch: int, path: str) -> list[str]:
    """Why a step of ``prompts`` cannot be cut into mini-batches of ``mini_batch`` prompts; ``path`` is their section."""
    key = f"{path}.ppo_mini_batch_size ({mini_batch})"
    if mini_batch > prompts:
        return [
            f"{key} > data.train_batch_size ({prompts}): {mini_batch} > {prompts}, no step has that many prompts. "
            f"Set {path}.ppo_mini_batch_size={prompts} for one optimizer step per pass."
        ]
    if prompts % mini_batch:
        return [
            f"data.train_batch_size ({prompts}) is not a multiple of {key}: {prompts} is not divisible by "
            f"{mini_batch}. Nearest mini-batch sizes: {_nearest_divisors(prompts, mini_batch)}."
        ]
    return []


def _pass_errors(sizes: UpdateArithmetic, product: str, key: str) -> list[str]:
    responses, dp = sizes.mini_batch_responses, sizes.dp_size
    micro = sizes.micro_batch or 1
    if responses % dp:
        return [
            f"{product} = {responses} responses for {dp} data-parallel workers: {responses}/{dp} is not whole. "
            f"Choose a multiple of {dp}, or leave the micro-batch size out to pack passes by tokens."
        ]
    each = responses // dp
    if each % micro:
        return [
            f"{product} = {responses} responses for {dp} data-parallel workers: {responses}/{dp} = {each} per worker, "
            f"which is not divisible by {key}. Nearest: {_nearest_divisors(each, micro)}."
        ]
    return []


def _nearest_divisors(number: int, wanted: int) -> str:
    divisors = [candidate for candidate in range(1, number + 1) if number % candidate == 0]
    below = max((d for d in divisors if d <= wanted), default=1)
    above = min((d for d in divisors if d >= wanted), default=number)
    return " or ".join(str(divisor) for divisor in sorted({below, above}))
