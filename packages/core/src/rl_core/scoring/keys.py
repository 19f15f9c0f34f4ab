"""Which common keys of ``reward_model`` core's reward manager reads; see ``rl_core.config.handed_over``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass
class NaiveKeys:
    """It has none of its own."""

    common_keys: ClassVar[frozenset[str]] = frozenset({"max_concurrent"})
