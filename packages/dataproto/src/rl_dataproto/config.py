"""Process-wide settings of the batch."""

from __future__ import annotations

import os

from rl_dataproto.errors import DataProtoTypeError


class _Settings(type):
    """Gives :class:`DataProtoConfig` its properties: they belong to the class, there are no instances."""

    auto_padding_key = "_auto_padding"
    _auto_padding: bool | None = None

    @property
    def auto_padding(cls) -> bool:
        """Whether every batch may be dealt unevenly; ``RL_AUTO_PADDING`` (``true`` or ``1``) until it is set."""
        if cls._auto_padding is None:
            return os.environ.get("RL_AUTO_PADDING", "").lower() in ("true", "1")
        return cls._auto_padding

    @auto_padding.setter
    def auto_padding(cls, enabled: bool | None) -> None:
        if enabled is not None and not isinstance(enabled, bool):
            msg = f"auto_padding was set to {enabled!r}: use True, False, or None to follow RL_AUTO_PADDING."
            raise DataProtoTypeError(msg)
        cls._auto_padding = enabled


class DataProtoConfig(metaclass=_Settings):
    """Settings of this process.

    ``DataProtoConfig.auto_padding`` lets dispatch deal any batch into uneven parts or pad it; it follows the
    environment variable ``RL_AUTO_PADDING`` until a bool is assigned. ``DataProtoConfig.auto_padding_key``
    is the ``meta_info`` key that allows it for one batch.
    """
