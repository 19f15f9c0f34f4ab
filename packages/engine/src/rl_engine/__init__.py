"""What training backends share: a library of parts, and an engine that puts them together."""

from rl_engine._version import __version__

__all__ = ["__version__"]
