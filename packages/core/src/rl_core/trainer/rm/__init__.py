"""Training of a reward model: ``rl rm KEY=VALUE ...``, also ``python -m rl_core.trainer.rm``.

``main(argv)`` runs a command line, ``run_rm(config)`` a composed configuration (``rl_core.config.compose_rm``).
"""

from __future__ import annotations

from rl_core.trainer.rm.command import main, run_rm

__all__ = ["main", "run_rm"]
