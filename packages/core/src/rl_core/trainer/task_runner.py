"""Runs the controller of a PPO run, in whatever process it belongs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rl_core.data.tokenizer import model_tokenizer
from rl_core.errors import FilteredGroupsError, MissingRewardError, MissingRolloutError
from rl_core.plugins import get_registry
from rl_core.runtime.choose import choose_runtime
from rl_core.trainer.ppo.resume import save_interrupted
from rl_core.trainer.ppo.trainer import PPOTrainer
from rl_core.trainer.run_folder import write_run_folder

if TYPE_CHECKING:
    from rl_core.config import Config, PPOTrainerConfig
    from rl_core.plugins import Registry


class TaskRunner:
    """Runs the controller: checks, tokenizer, trainer, loop."""

    def run(self, composed: Config) -> None:
        """Train as configured; everything that was started is ended, also after a failure."""
        config, registry = composed.tree, get_registry()
        runtime = choose_runtime(config, registry)
        trainer = PPOTrainer(config, load_tokenizer(config, registry), runtime, registry)
        try:
            trainer.init_workers()
            if trainer.global_step >= trainer.total_steps:
                folder = config.trainer.default_local_dir
                print(f"already complete: all {trainer.total_steps} steps are done, see {folder}")  # noqa: T201
            elif not (config.trainer.val_only and trainer.global_step):
                # A run that is refused, or has nothing to do, must not describe itself as what trained the checkpoints.
                write_run_folder(composed, registry)
            trainer.fit()
        except (MissingRolloutError, MissingRewardError, FilteredGroupsError):
            save_interrupted(trainer)
            raise
        finally:
            trainer.close()


def load_tokenizer(config: PPOTrainerConfig, registry: Registry) -> Any:
    """The policy's tokenizer: the backend's own loader where it has one, otherwise that of the model's folder.

    Raises:
        ConfigError: there is none.
    """
    model = config.actor_rollout_ref.model
    path = config.data.tokenizer or model.tokenizer_path or model.path
    return model_tokenizer(
        model, config.actor_rollout_ref.actor.strategy, registry, path=path, section="actor_rollout_ref.model"
    )
