"""Answer and score a file with the weights of a checkpoint, through the parts that a run's validation uses."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from rl_core.config.roles import scores_by_model
from rl_core.data.build import val_prompts
from rl_core.errors import CheckpointError
from rl_core.runtime.choose import choose_runtime
from rl_core.trainer.placement import start_workers
from rl_core.trainer.ppo.reward import check_rewards_exist, require_rewards, reward_manager, score_rows
from rl_core.trainer.ppo.sampler import prompt_groups
from rl_core.trainer.ppo.sampler_failures import require_rollouts, settle_group
from rl_core.trainer.ppo.validation import Answers, Validator
from rl_core.workers.roles import Role

if TYPE_CHECKING:
    from rl_core.config import PPOTrainerConfig
    from rl_core.plugins import Registry
    from rl_core.trainer.checkpoint import Checkpoint


class Evaluation:
    """One file, one checkpoint. Data and rewards are looked at first, before a worker is started."""

    def __init__(
        self, config: PPOTrainerConfig, checkpoint: Checkpoint | None, tokenizer: Any, registry: Registry
    ) -> None:
        """Read the rows and find their rewards.

        Args:
            config: from ``configure``.
            checkpoint: whose weights answer; None leaves those of ``model.path``.
            tokenizer: of the policy.
            registry: finds rewards and engines by name.

        Raises:
            ConfigError: a data source has no reward, or the runtime cannot be had.
            DataError: a row cannot be used.
        """
        self.config = config
        self.checkpoint = checkpoint
        self.dataset = val_prompts(config.data, tokenizer)
        check_rewards_exist(config, [self.dataset], registry)
        self._is_scored_by_model = scores_by_model(config, registry)
        self._reward_manager = reward_manager(config, tokenizer, registry)
        self._runtime = choose_runtime(config, registry)

    def run(self) -> Answers:
        """Start the workers, load the weights, answer every prompt, score every answer, end the workers.

        Raises:
            CheckpointError: the checkpoint is of another model, or its files cannot be read.
            MissingRolloutError: no prompt was answered at all.
        """
        with ExitStack() as stack:
            stack.callback(self._runtime.shutdown)
            stack.callback(self._reward_manager.close)
            roles = [Role.ActorRolloutRef, *([Role.RewardModel] if self._is_scored_by_model else [])]
            # Nothing is trained, so the length of the run only has to be one that every learning-rate schedule accepts.
            length = self.config.trainer.total_training_steps or 1
            groups = start_workers(self._runtime, self.config, roles, total_training_steps=length)
            policy, reward_model = groups[Role.ActorRolloutRef], groups.get(Role.RewardModel)
            load_weights(policy, self.checkpoint, self.config)

            def score(batch: Any) -> Any:
                return score_rows(batch, self._reward_manager, reward_model)

            return Validator(self.config, self.dataset, policy.generate_sequences, score).answer()


def load_weights(policy: Any, checkpoint: Checkpoint | None, config: PPOTrainerConfig) -> None:
    """Let the actor-rollout group ``policy`` take over the weights of ``checkpoint``; None leaves those of ``model.path``.

    Raises:
        CheckpointError: the checkpoint is of another model, or its files cannot be read.
    """
    if checkpoint is not None:
        _require_model(checkpoint, policy.model_fingerprint(), config.actor_rollout_ref.model.path)
        policy.load_checkpoint(str(checkpoint.path / "actor"), checkpoint.trainer_state()["policy_version"])


def require_answers(answers: Answers, config: PPOTrainerConfig) -> None:
    """Refuse answers of which too many are missing.

    Raises:
        MissingRolloutError: more rollouts failed than ``trainer.max_failed_rollout_fraction`` allows.
        MissingRewardError: more rewards are missing than ``trainer.max_failed_reward_fraction`` allows.
    """
    groups = prompt_groups(answers.prompts)
    errors: dict[str, list[tuple[str, str | None]]] = {group.uid: [] for group in groups}
    for uid, error in zip(answers.prompts.non_tensor_batch["uid"], answers.errors, strict=True):
        if error is not None:
            errors[uid].append((error, None))
    for group in groups:
        settle_group(group, errors[group.uid])
    require_rollouts(config, groups)
    require_rewards(answers.results, config.trainer.max_failed_reward_fraction)


def _require_model(checkpoint: Checkpoint, found: str, path: str | None) -> None:
    saved = checkpoint.identity.get("model")
    if saved != found:
        msg = (
            f"{checkpoint.path} is a checkpoint of another model (fingerprint {saved}) than the one in {path} ({found}). "
            "Give the model that its run started from: actor_rollout_ref.model.path=FOLDER"
        )
        raise CheckpointError(msg)
