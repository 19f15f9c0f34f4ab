"""``python -m rl_core.trainer.main_ppo key=value ...`` (also ``rl train``): from a command line to ``fit``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rl_core.cli.main import report_errors
from rl_core.config import compose_request, parse_cli
from rl_core.plugins import get_registry

if TYPE_CHECKING:
    from rl_core.config import PPOTrainerConfig
    from rl_core.plugins import Registry


class TaskRunner:
    """Runs the controller: checks, tokenizer, trainer, loop."""

    def run(self, config: PPOTrainerConfig) -> None:
        """Train as ``config`` says; everything that was started is ended, also after a failure."""
        # Heavy imports stand here so that a wrong key is reported before torch is loaded.
        from rl_core.runtime.choose import choose_runtime  # noqa: PLC0415
        from rl_core.trainer.ppo.trainer import PPOTrainer  # noqa: PLC0415

        registry = get_registry()
        runtime = choose_runtime(config, registry)
        trainer = PPOTrainer(config, load_tokenizer(config, registry), runtime, registry)
        try:
            trainer.init_workers()
            trainer.fit()
        finally:
            trainer.close()


def load_tokenizer(config: PPOTrainerConfig, registry: Registry) -> Any:
    """The policy's tokenizer: the backend's own loader where it has one, otherwise that of the model's folder."""
    model = config.actor_rollout_ref.model
    path = config.data.tokenizer or model.tokenizer_path or model.path
    loader = registry.load_tokenizer(config.actor_rollout_ref.actor.strategy)
    if loader is not None:
        return loader(path)
    from transformers import AutoTokenizer  # noqa: PLC0415 - heavy, and backends may bring their own

    return AutoTokenizer.from_pretrained(path, trust_remote_code=model.trust_remote_code)


def run_ppo(config: PPOTrainerConfig) -> None:
    """Run the controller here, or as an actor of the runtime's cluster."""
    TaskRunner().run(config)


def main(argv: Sequence[str]) -> int:
    """Compose the configuration from ``argv`` and train; expected errors are raised as ``RlError``."""
    run_ppo(compose_request(parse_cli(argv)).tree)
    return 0


if __name__ == "__main__":
    sys.exit(report_errors(main, sys.argv[1:]))
