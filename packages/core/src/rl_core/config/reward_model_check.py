"""What ``rl check`` says about the reward model: sizes that do not fit, and keys that it has no use for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from rl_core.config.batch_math import step_errors
from rl_core.config.derive import estimator_needs
from rl_core.plugins import RewardModelRecord

if TYPE_CHECKING:
    from rl_core.config.compose import Composed, Config

UPDATE: Final = "update"
TRAINED_KEYS: Final = ("optim.", "grad_clip", "ppo_mini_batch_size", "ppo_epochs", "shuffle", "data_loader_seed")
"""Keys of ``reward_model`` that only one that is trained has a use for; a section ends in a dot."""

TEXT_KEYS: Final = ("max_length", "model.input_tokenizer")
"""Keys of ``reward_model`` that only one that scores whole conversations has a use for."""


def reward_model_errors(config: Config) -> Iterator[str]:
    """One message for each thing that the reward model cannot run with."""
    tree, record = config.tree, _record(config)
    needed = estimator_needs(config.records, "process_rewards")
    if needed and (record is None or record.gives != "process"):
        yield (
            f"advantage estimator {tree.algorithm.adv_estimator!r} works on a reward for each token, which no reward model of "
            "this run gives. Set reward_model.enable=true and reward_model.type to one that does."
        )
    if record is None:
        return
    if tree.reward_model.model.path is None:
        yield "reward_model.enable is true, but reward_model.model.path is not set. Give the scoring model."
    if record.trained and tree.reward_model.update != "none":
        size = tree.reward_model.ppo_mini_batch_size or tree.actor_rollout_ref.actor.ppo_mini_batch_size
        yield from step_errors(tree.data.train_batch_size, size, "reward_model")


def unread_by_reward_model(config: Config) -> Iterator[tuple[str, str]]:
    """Given keys that the chosen reward model has no use for, with the reason."""
    record = _record(config)
    if record is None:
        return
    keys: tuple[str, ...]
    if record.gives == "process":
        yield from _given(config, TEXT_KEYS, f"reward model {record.name!r} scores the policy's own tokens")
    if not record.trained:
        keys, reason = (UPDATE, *TRAINED_KEYS), f"reward model {record.name!r} is not trained"
    elif config.tree.reward_model.update == "none":
        keys, reason = TRAINED_KEYS, "reward_model.update is none"
    else:
        return
    yield from _given(config, keys, reason)


def _given(config: Composed, keys: tuple[str, ...], reason: str) -> Iterator[tuple[str, str]]:
    for path in sorted(config.given):
        name = path.removeprefix("reward_model.")
        if name != path and any(name == key or (key.endswith(".") and name.startswith(key)) for key in keys):
            yield path, reason


def _record(config: Composed) -> RewardModelRecord | None:
    """The chosen reward model; None in a run without one."""
    record = config.records.get("reward_model.type")
    return record if config.tree.reward_model.enable and isinstance(record, RewardModelRecord) else None
