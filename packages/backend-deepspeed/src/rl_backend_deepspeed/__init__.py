"""Training engine on DeepSpeed's ZeRO: the plugin ``deepspeed`` of rl-core."""

from rl_backend_deepspeed._version import __version__

__all__ = ["__version__"]
