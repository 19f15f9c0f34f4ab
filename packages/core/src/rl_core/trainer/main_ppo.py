"""``python -m rl_core.trainer.main_ppo key=value ...`` (also ``rl train``): from a command line to ``fit``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rl_core.config import compose_request, parse_cli
from rl_core.config.check import check_config
from rl_core.config.printing import cfg_text
from rl_core.entry_point import report_errors
from rl_core.errors import ConfigError, MissingRewardError, MissingRolloutError
from rl_core.plugins import get_registry

if TYPE_CHECKING:
    from rl_core.config import Config, PPOTrainerConfig
    from rl_core.plugins import Registry


_USAGE = """rl train KEY=VALUE ...        train with PPO, GRPO or their kin

  --cfg job                   print the composed configuration and stop
  --config-name, --config-path    take a configuration file instead of the defaults
  --traceback                 show the traceback of an expected error as well

Keys: rl config show --help-key SECTION.  Before a run: rl check KEY=VALUE ..."""


class TaskRunner:
    """Runs the controller: checks, tokenizer, trainer, loop."""

    def run(self, composed: Config) -> None:
        """Train as configured; everything that was started is ended, also after a failure."""
        # Heavy imports stand here so that a wrong key is reported before torch is loaded.
        from rl_core.runtime.choose import choose_runtime  # noqa: PLC0415
        from rl_core.trainer.ppo.resume import save_interrupted  # noqa: PLC0415
        from rl_core.trainer.ppo.trainer import PPOTrainer  # noqa: PLC0415
        from rl_core.trainer.run_folder import write_run_folder  # noqa: PLC0415

        config, registry = composed.tree, get_registry()
        runtime = choose_runtime(config, registry)
        folder = write_run_folder(composed, registry)
        trainer = PPOTrainer(config, load_tokenizer(config, registry), runtime, registry)
        try:
            trainer.init_workers()
            if trainer.global_step >= trainer.total_steps:
                print(f"already complete: all {trainer.total_steps} steps are done, see {folder}")  # noqa: T201
            trainer.fit()
        except (MissingRolloutError, MissingRewardError):
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
    loader = registry.load_tokenizer(config.actor_rollout_ref.actor.strategy)
    if loader is not None:
        return loader(path, trust_remote_code=model.trust_remote_code, chat_template=model.custom_chat_template)
    from transformers import AutoTokenizer  # noqa: PLC0415 - heavy, and backends may bring their own

    try:
        return AutoTokenizer.from_pretrained(path, trust_remote_code=model.trust_remote_code)
    except (OSError, ValueError) as error:
        msg = f"no tokenizer in {path!r}: {error}. Set actor_rollout_ref.model.tokenizer_path to a folder that has one"
        raise ConfigError(msg) from error


def run_ppo(config: Config) -> None:
    """Check the configuration, then run the controller: here, or as an actor of the runtime's cluster.

    Raises:
        ConfigError: the run could not work; nothing was started.
    """
    report = check_config(config, None, get_registry())
    report.raise_if_failed()
    for line in report.start_lines():
        print(line)  # noqa: T201 - what the run does differently from what was asked stands above its first step
    TaskRunner().run(config)


def main(argv: Sequence[str]) -> int:
    """Compose the configuration from ``argv`` and train; expected errors are raised as ``RlError``."""
    request = parse_cli(argv)
    if request.show_help:
        print(_USAGE)  # noqa: T201 - what was asked for
        return 0
    if request.cfg:
        print(cfg_text(request), end="")  # noqa: T201 - what was asked for
        return 0
    run_ppo(compose_request(request))
    return 0


if __name__ == "__main__":
    sys.exit(report_errors(main, sys.argv[1:]))
