"""``reward_model.*`` and ``custom_reward_function.*``: how responses are scored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rl_core.config.data import CustomClassConfig
from rl_core.config.node import Node, free_form, number, plugin


@dataclass
class CustomRewardFunctionConfig(Node):
    """A reward function of your own."""

    path: str | None = None
    """Python file that holds the function; null takes the rule that fits the row's ``data_source``."""

    name: str = "compute_score"
    """Name of the function: ``f(data_source, solution_str, ground_truth, extra_info=None) -> float | dict``."""

    reward_kwargs: dict[str, Any] = free_form()
    """Further arguments of the function."""


@dataclass
class RewardModelPathConfig(Node):
    """The scoring model."""

    path: str | None = None
    """Folder or hub name of the model."""

    input_tokenizer: str | None = None
    """Folder of the policy's tokenizer, when the scoring model has another one and text must be re-tokenised."""

    tokenizer_path: str | None = None
    """Folder of the scoring model's tokenizer; null takes ``path``."""

    trust_remote_code: bool | None = None
    """Run Python code that comes with the model; null takes the actor's."""

    override_config: dict[str, Any] = free_form()
    """Entries that replace those of the model's own configuration."""

    use_shm: bool = False
    """Copy the weights to shared memory before loading."""

    use_remove_padding: bool | None = None
    """Pack sequences without padding; null takes the actor's."""


@dataclass
class SandboxConfig(Node):
    """Where code from responses runs."""

    url: str | None = None
    """Address of the sandbox service; null runs code in the local sandbox."""

    max_concurrent: int = number(64, ge=1)
    """Runs at a time."""

    memory_limit_mb: int = number(1024, ge=1)
    """Memory of one run."""


@dataclass
class RewardModelConfig(Node):
    """Reward managers, and an optional scoring model."""

    enable: bool = False
    """Score with a model instead of a rule."""

    enable_resource_pool: bool = False
    """Give the scoring model workers of its own instead of the shared ones."""

    nnodes: int = number(0, ge=0)
    """Nodes of that pool."""

    n_gpus_per_node: int = number(8, ge=0)
    """Workers per node of that pool."""

    strategy: str | None = plugin("backend", None)
    """Engine that runs the scoring model; null takes the actor's."""

    model: RewardModelPathConfig = field(default_factory=RewardModelPathConfig)
    """The scoring model."""

    rollout: dict[str, Any] = free_form()
    """Generation settings of a scoring model that writes its judgement."""

    micro_batch_size: int | None = number(None, ge=1)
    """Responses per scoring pass over all workers together; use the next key."""

    micro_batch_size_per_gpu: int | None = number(None, ge=1)
    """Responses per scoring pass on one worker."""

    use_dynamic_bsz: bool | None = None
    """Pack passes by tokens; null turns it on when no micro-batch size is given."""

    forward_max_token_len_per_gpu: int | None = number(None, ge=1)
    """Tokens per scoring pass on one worker; null takes the critic's."""

    max_length: int | None = number(None, ge=1)
    """Longest sequence the scoring model reads; null takes prompt plus response."""

    ulysses_sequence_parallel_size: int = number(1, ge=1)
    """Workers that share one sequence."""

    num_workers: int = number(8, ge=1)
    """Processes that run reward functions."""

    reward_manager: str = plugin("reward_manager", "naive", is_open=True)
    """What runs reward functions over a batch."""

    reward_manager_source: str | None = None
    """Old switch; a module given below takes precedence over the name."""

    reward_manager_module: CustomClassConfig = field(default_factory=CustomClassConfig)
    """Reward manager class from a file."""

    reward_kwargs: dict[str, Any] = free_form()
    """Arguments of the reward manager, for example the overlong penalty."""

    timeout: float = number(300.0, gt=0)
    """Deadline of one score in seconds; a later one counts as missing."""

    max_concurrent: int | None = number(None, ge=1)
    """Scores in flight, for managers that limit them."""

    max_rpm: int | None = number(None, ge=1)
    """Requests per minute, for managers that limit them."""

    max_tpm: int | None = number(None, ge=1)
    """Tokens per minute, for managers that limit them."""

    estimated_tokens_per_request: int = number(2000, ge=1)
    """Tokens a request is counted with until its answer says."""

    launch_reward_fn_async: bool = False
    """Old switch; scoring always starts as each response ends."""

    sandbox_fusion: SandboxConfig = field(default_factory=SandboxConfig)
    """Where code from responses runs."""

    profiler: dict[str, Any] = free_form()
    """Profiling of this role."""
