"""The fake training engines' own section of a role: ``<role>.fake_config``. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from rl_core.errors import ConfigError


@dataclass
class FakeEngineConfig:
    """How a fake training engine is laid out over its workers, and what leaves the device between phases."""

    param_offload: bool = False
    """Keep parameters and gradients on the host while another role has the device."""

    optimizer_offload: bool = False
    """Keep the optimizer's state on the host while another role has the device."""

    pipeline_size: int | None = None
    """Pipeline stages (pipeline engine only); null chooses by the number of workers."""

    vocab_parallel_size: int | None = None
    """Ranks that share the head of the last stage (pipeline engine only); null chooses by the number of workers."""

    dropout: float = 0.0
    """Share of each layer's output that is dropped in training: makes a run depend on the engine's random state."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where one rank of a pipeline engine stands; ``rank = (dp_rank * pp_size + pp_rank) * tp_size + tp_rank``."""

    dp_rank: int
    dp_size: int
    pp_rank: int
    pp_size: int
    tp_rank: int
    tp_size: int

    @classmethod
    def of(cls, rank: int, world_size: int, config: FakeEngineConfig) -> Layout:
        """Place ``rank``.

        Without sizes, 1 worker is one stage, 2 are two stages, 4 are two stages of two; with one size given, the other
        is 1. What remains is data-parallel.

        Raises:
            ConfigError: the workers cannot be divided into stages and shares of the vocabulary.
        """
        pp_size, tp_size = config.pipeline_size, config.vocab_parallel_size
        if pp_size is None and tp_size is None:
            pp_size = 2 if world_size % 2 == 0 else 1
            tp_size = 2 if world_size % 4 == 0 else 1
        pp_size, tp_size = pp_size or 1, tp_size or 1
        if min(pp_size, tp_size) < 1 or world_size % (pp_size * tp_size):
            msg = (
                f"pipeline_size ({pp_size}) x vocab_parallel_size ({tp_size}) must divide the number of workers; there "
                f"are {world_size}. Lower one of the two."
            )
            raise ConfigError(msg)
        outer, tp_rank = divmod(rank, tp_size)
        dp_rank, pp_rank = divmod(outer, pp_size)
        return cls(dp_rank, world_size // (pp_size * tp_size), pp_rank, pp_size, tp_rank, tp_size)

    def rank_of(self, *, dp_rank: int, pp_rank: int, tp_rank: int) -> int:
        """The rank at a place of this layout."""
        return (dp_rank * self.pp_size + pp_rank) * self.tp_size + tp_rank
