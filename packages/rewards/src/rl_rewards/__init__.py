"""Verifiers for RL post-training of language models, as a plugin of rl-core."""

from rl_rewards._version import __version__

__all__ = ["__version__"]
