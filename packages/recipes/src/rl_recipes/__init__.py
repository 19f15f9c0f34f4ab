"""Whole methods as one word of a command: ``recipe=dapo``. A plugin of rl-core."""

from rl_recipes._version import __version__

__all__ = ["__version__"]
