"""Supervised fine-tuning: ``rl sft KEY=VALUE ...``, also ``python -m rl_core.trainer.sft``.

``main(argv)`` runs a command line, ``run_sft(config)`` a composed configuration (``rl_core.config.compose_sft``).
"""

from __future__ import annotations

from rl_core.trainer.sft.command import main, run_sft

__all__ = ["main", "run_sft"]
