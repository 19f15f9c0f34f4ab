"""Fast ways for weights from a training engine to a generation engine: the plugin ``rl-resharding`` of rl-core."""

from rl_resharding._version import __version__

__all__ = ["__version__"]
