"""``actor_rollout_ref.ref.*``: the frozen reference policy."""

from __future__ import annotations

from dataclasses import dataclass, field

from rl_core.config.node import Node, number, plugin
from rl_core.config.profiler import RoleProfilerConfig


@dataclass
class RefConfig(Node):
    """Log-probs of the reference policy."""

    strategy: str | None = plugin("backend", None)
    """Training engine by name; null takes the actor's."""

    log_prob_micro_batch_size: int | None = number(None, ge=1)
    """Responses per forward pass over all workers together; use the next key."""

    log_prob_micro_batch_size_per_gpu: int | None = number(None, ge=1)
    """Responses per forward pass on one worker."""

    log_prob_use_dynamic_bsz: bool | None = None
    """Pack passes by tokens; null turns it on when no micro-batch size is given."""

    log_prob_max_token_len_per_gpu: int | None = number(None, ge=1)
    """Tokens per forward pass on one worker; null takes the actor's."""

    ulysses_sequence_parallel_size: int | None = number(None, ge=1)
    """Workers that share one sequence; null takes the actor's."""

    use_torch_compile: bool | None = None
    """Compile the log-prob kernel; null takes the actor's."""

    entropy_from_logits_with_chunking: bool = False
    """Compute the entropy in chunks of the sequence."""

    entropy_checkpointing: bool = False
    """Recompute the entropy in a backward pass."""

    enable_resource_pool: bool = False
    """Give the reference policy workers of its own instead of the shared ones."""

    nnodes: int = number(0, ge=0)
    """Nodes of that pool."""

    n_gpus_per_node: int = number(0, ge=0)
    """Workers per node of that pool."""

    profiler: RoleProfilerConfig = field(default_factory=RoleProfilerConfig)
    """Profiling of this role."""
