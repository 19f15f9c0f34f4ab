"""Which common keys of ``reward_model`` each manager reads; anything else is reported as having no effect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass
class BatchKeys:
    """Keys of ``batch``."""

    common_keys: ClassVar[frozenset[str]] = frozenset({"max_concurrent", "reward_kwargs.batch_size"})


@dataclass
class PrimeKeys:
    """Keys of ``prime``."""

    common_keys: ClassVar[frozenset[str]] = frozenset({"max_concurrent"})


@dataclass
class RateLimitedKeys:
    """Keys of ``rate_limited``."""

    common_keys: ClassVar[frozenset[str]] = frozenset(
        {"max_concurrent", "max_rpm", "max_tpm", "estimated_tokens_per_request"}
    )


@dataclass
class RemoteKeys:
    """Keys of ``remote``."""

    common_keys: ClassVar[frozenset[str]] = frozenset(
        {"max_concurrent", "max_rpm", "max_tpm", "estimated_tokens_per_request"}
        | {f"reward_kwargs.{name}" for name in ("url", "batch_size", "retries", "api_key_env")}
    )
