"""Own keys of the fake rollouts: ``actor_rollout_ref.rollout.fake_config.*``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class FakeRolloutConfig:
    """What a test may want to change in a fake rollout."""

    eos_token_ids: list[int] = field(default_factory=lambda: [1])
    """Ids that end a response, as a real engine reads them from the model's generation settings."""

    with_token_ranks: bool = False
    """Return ``extras["token_ranks"]``: how many tokens were likelier than the one drawn, int64 [response length]."""

    @classmethod
    def below(cls, rollout: Any) -> FakeRolloutConfig:
        """The section as it is mounted below ``rollout``, or the defaults where nothing is mounted."""
        found = getattr(rollout, "fake_config", None)
        return cls() if found is None else found
