"""Training engine on PyTorch FSDP2: the plugin ``fsdp`` of rl-core."""

from rl_backend_fsdp._version import __version__

__all__ = ["__version__"]
