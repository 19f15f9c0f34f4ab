"""The built-in generation engine, on transformers models: the plugin ``hf`` of rl-core."""

from rl_rollout_hf._version import __version__

__all__ = ["__version__"]
