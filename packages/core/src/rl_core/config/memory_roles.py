"""From a configuration to what engines are asked about their memory: one question for each part of the phase table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rl_core.config.batch_math import update_arithmetic
from rl_core.config.memory_question import TrainingMemoryQuestion
from rl_core.config.micro_batch import model_parallel_size
from rl_core.config.offline import OfflineConfig
from rl_core.config.phase_table import Part
from rl_core.config.roles import needs_reference, pools, reward_model_record
from rl_core.config.schema import mount_key

if TYPE_CHECKING:
    from rl_core.config.batch_math import Role
    from rl_core.config.layout import RunTree
    from rl_core.config.root import PPOTrainerConfig
    from rl_core.plugins import Registry


@dataclass(frozen=True)
class AskedPart:
    """A part with a training engine.

    Attributes:
        backend: name of its engine.
        question: what the engine is asked.
    """

    backend: str
    question: TrainingMemoryQuestion


def asked_parts(tree: RunTree, workers: Mapping[str, int], registry: Registry) -> dict[Part, AskedPart]:
    """The parts of a run that have a training engine.

    Args:
        tree: composed configuration.
        workers: role -> workers of its pool.
        registry: the backends.
    """
    if isinstance(tree, OfflineConfig):
        return {Part.ACTOR: _offline(tree, workers["actor"], registry)}
    is_gpu = tree.trainer.device != "cpu"
    return {part: AskedPart(backend, question) for part, backend, question in _asked(tree, workers, registry, is_gpu)}


def sequence_tokens(tree: PPOTrainerConfig) -> int:
    """Tokens of the longest prompt and response together."""
    rollout = tree.actor_rollout_ref.rollout
    prompt = rollout.prompt_length or tree.data.max_prompt_length
    return prompt + (rollout.response_length or tree.data.max_response_length)


def worker_counts(tree: RunTree) -> dict[str, int]:
    """Role -> workers of its pool."""
    return {role: pool.num_workers for pool in pools(tree) for role in pool.roles}


def _asked(
    tree: PPOTrainerConfig, workers: Mapping[str, int], registry: Registry, is_gpu: bool
) -> Iterator[tuple[Part, str, TrainingMemoryQuestion]]:
    section, longest = tree.actor_rollout_ref, sequence_tokens(tree)
    actor, rollout, ref = section.actor, section.rollout, section.ref
    update, accumulates = _update(tree, "actor", workers["actor"], longest)
    yield (
        Part.ACTOR,
        actor.strategy,
        TrainingMemoryQuestion(
            role="policy",
            model=section.model,
            plugin=_plugin(actor, actor.strategy, registry),
            optim=actor.optim,
            num_workers=workers["actor"],
            update_tokens=update,
            forward_tokens=_tokens(
                rollout.log_prob_max_token_len_per_gpu if rollout.log_prob_use_dynamic_bsz else None,
                rollout.log_prob_micro_batch_size_per_gpu,
                longest,
                model_parallel_size(actor, workers["actor"]),
            ),
            accumulates=accumulates,
            compiled=actor.use_torch_compile,
            with_entropy=bool(actor.entropy_coeff),
            is_gpu=is_gpu,
        ),
    )
    if needs_reference(tree) and section.model.lora_rank == 0:
        strategy = ref.strategy or actor.strategy
        yield (
            Part.REF,
            strategy,
            TrainingMemoryQuestion(
                role="reference",
                model=section.model,
                plugin=_plugin(ref, strategy, registry),
                num_workers=workers["ref"],
                forward_tokens=_tokens(
                    ref.log_prob_max_token_len_per_gpu if ref.log_prob_use_dynamic_bsz else None,
                    ref.log_prob_micro_batch_size_per_gpu,
                    longest,
                    ref.ulysses_sequence_parallel_size or actor.ulysses_sequence_parallel_size,
                ),
                compiled=bool(ref.use_torch_compile),
                is_gpu=is_gpu,
            ),
        )
    if tree.critic.enable:
        yield _critic(tree, workers["critic"], registry, is_gpu)
    if tree.reward_model.enable:
        yield from _reward_model(tree, workers["reward_model"], registry, is_gpu)


def _critic(
    tree: PPOTrainerConfig, workers: int, registry: Registry, is_gpu: bool
) -> tuple[Part, str, TrainingMemoryQuestion]:
    critic, longest = tree.critic, sequence_tokens(tree)
    strategy = critic.strategy or tree.actor_rollout_ref.actor.strategy
    update, accumulates = _update(tree, "critic", workers, longest)
    question = TrainingMemoryQuestion(
        role="value",
        model=critic.model,
        plugin=_plugin(critic, strategy, registry),
        optim=critic.optim,
        num_workers=workers,
        update_tokens=update,
        forward_tokens=_tokens(
            critic.forward_max_token_len_per_gpu if critic.use_dynamic_bsz else None,
            critic.forward_micro_batch_size_per_gpu,
            longest,
            model_parallel_size(critic, workers),
        ),
        accumulates=accumulates,
        compiled=False,
        is_gpu=is_gpu,
    )
    return Part.CRITIC, strategy, question


def _reward_model(
    tree: PPOTrainerConfig, workers: int, registry: Registry, is_gpu: bool
) -> Iterator[tuple[Part, str, TrainingMemoryQuestion]]:
    section = tree.reward_model
    strategy = section.strategy or tree.actor_rollout_ref.actor.strategy
    record = reward_model_record(tree, registry)
    is_trained = record is not None and record.trained and section.update != "none"
    longest = section.max_length or sequence_tokens(tree)
    tokens = _tokens(
        section.forward_max_token_len_per_gpu if section.use_dynamic_bsz else None,
        section.micro_batch_size_per_gpu,
        longest,
        model_parallel_size(section, workers),
    )
    is_language_model = record is not None and record.trained
    shared: dict[str, Any] = {
        "model": section.model,
        "plugin": _plugin(section, strategy, registry),
        "num_workers": workers,
        "forward_tokens": tokens,
        "compiled": False,
        "is_gpu": is_gpu,
    }
    question = TrainingMemoryQuestion(
        role="policy" if is_language_model else "reward",
        optim=section.optim if is_trained else None,
        update_tokens=tokens if is_trained else 0,
        **shared,
    )
    yield Part.REWARD_MODEL, strategy, question
    if is_language_model:
        yield Part.REWARD_REFERENCE, strategy, TrainingMemoryQuestion(role="reference", **shared)


def _offline(tree: OfflineConfig, workers: int, registry: Registry) -> AskedPart:
    data, engine = tree.data, tree.engine
    is_pairs = hasattr(tree, "loss")
    longest = data.max_length * (2 if is_pairs else 1)
    slices = model_parallel_size(engine, workers)
    tokens = _tokens(
        data.max_token_len_per_gpu if data.use_dynamic_bsz else None, data.micro_batch_size_per_gpu, longest, slices
    )
    rows = -(-data.train_batch_size // max(1, workers // slices))
    question = TrainingMemoryQuestion(
        role="reward" if is_pairs else "policy",
        model=tree.model,
        plugin=_plugin(engine, engine.strategy, registry),
        optim=tree.optim,
        num_workers=workers,
        update_tokens=tokens,
        forward_tokens=tokens,
        accumulates=rows * longest > tokens * slices,
        compiled=False,
        is_gpu=tree.trainer.device != "cpu",
    )
    return AskedPart(engine.strategy, question)


def _update(tree: PPOTrainerConfig, role: Role, workers: int, longest: int) -> tuple[int, bool]:
    """Tokens of a pass on one worker, and whether a mini-batch takes several of them."""
    sizes = update_arithmetic(tree, role, workers)
    section = tree.actor_rollout_ref.actor if role == "actor" else tree.critic
    slices = model_parallel_size(section, workers)
    tokens = _tokens(sizes.max_tokens, sizes.micro_batch, longest, slices)
    return tokens, sizes.responses_per_worker * longest > tokens * slices


def _tokens(budget: int | None, rows: int | None, longest: int, slices: int) -> int:
    """Most tokens of a pass on one worker: of a token budget, which one long row may exceed, or of so many rows."""
    if budget is not None:
        return max(budget, -(-longest // slices))
    return -(-(rows or 1) * longest // slices)


def _plugin(section: Any, strategy: str, registry: Registry) -> Any:
    record = registry.record("backend", strategy)
    return getattr(section, mount_key(record), None) if record.config else None
