"""Contract suites, planted faults and fakes for plugins of rl-core."""

from rl_testing._version import __version__

__all__ = ["__version__"]
