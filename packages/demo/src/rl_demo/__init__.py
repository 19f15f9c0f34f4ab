"""A demonstration of rl-core: a tiny model learns to add, by SFT until it is mediocre and by GRPO from there."""

from rl_demo._version import __version__

__all__ = ["__version__"]
