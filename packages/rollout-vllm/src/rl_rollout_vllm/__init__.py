"""vLLM as a generation engine: the plugin ``vllm`` of rl-core."""

from rl_rollout_vllm._version import __version__

__all__ = ["__version__"]
