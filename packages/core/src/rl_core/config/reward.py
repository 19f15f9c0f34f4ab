"""``reward_model.*`` and ``custom_reward_function.*``: how responses are scored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rl_core.config.data import CustomClassConfig
from rl_core.config.node import Node, choice, free_form, number, plugin
from rl_core.config.optim import OptimConfig
from rl_core.config.profiler import RoleProfilerConfig


@dataclass
class CustomRewardFunctionConfig(Node):
    """A reward function of your own."""

    path: str | None = None
    """Python file that holds the function; null takes an installed reward, by ``name`` or by the row's ``data_source``."""

    name: str = "compute_score"
    """Name of the function: ``f(data_source, solution_str, ground_truth, extra_info=None) -> float | dict``; sync or async.
    Without a ``path``, name of an installed reward for all rows; left as it is, each row's ``data_source`` names one."""

    reward_kwargs: dict[str, Any] = free_form()
    """Further arguments of the function."""


@dataclass
class RewardModelPathConfig(Node):
    """The scoring model."""

    path: str | None = None
    """Folder or hub name of the model."""

    input_tokenizer: str | None = None
    """Folder of the policy's tokenizer, with which responses are decoded for a scoring model that has another one; null
    takes the actor's."""

    tokenizer_path: str | None = None
    """Folder of the scoring model's tokenizer and chat template; null takes ``path``. With the policy's vocabulary and
    template the sampled tokens are scored as they are, otherwise the conversation is written anew."""

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
    """Requests to the service at a time, from each process that runs reward functions. The local sandbox runs one program in
    each of these."""

    memory_limit_mb: int = number(1024, ge=1)
    """MiB that one run may take."""

    allow_weaker: bool = False
    """Run code also where the local sandbox cannot keep it from everything; else such a machine is refused."""


@dataclass
class RewardModelConfig(Node):
    """Reward managers, and an optional scoring model."""

    enable: bool = False
    """Score with a model: instead of a rule, or, token by token, beside it; ``type`` says which."""

    type: str = plugin("reward_model", "outcome")
    """What kind of scoring model; ``outcome`` is a frozen one with a score head, which takes the place of a rule."""

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
    """Tokens per scoring pass on one worker; null takes the critic's. A model that is trained is trained in passes of the
    sizes in which it scores."""

    update: str = choice("after", "after", "before", "none")
    """When a scoring model that can be trained learns from a step's rows: ``after`` it has scored them; ``before``, so that
    it scores them once more; or never."""

    optim: OptimConfig = field(default_factory=OptimConfig)
    """Optimizer of a scoring model that is trained."""

    grad_clip: float = number(1.0, gt=0)
    """Its largest gradient norm."""

    ppo_mini_batch_size: int | None = number(None, ge=1)
    """Prompts per optimizer step of a scoring model that is trained; null takes the actor's."""

    ppo_epochs: int | None = number(None, ge=1)
    """Its passes over a step's responses; null takes the actor's."""

    shuffle: bool | None = None
    """Random mini-batches; null takes the actor's."""

    data_loader_seed: int | None = None
    """Seed of that order; null takes the actor's."""

    max_length: int | None = number(None, ge=2)
    """Longest conversation the scoring model reads, in its tokens: the beginning of a longer one is left out, which
    ``reward_extra/rm_truncated/mean`` counts. Null sets no limit."""

    ulysses_sequence_parallel_size: int = number(1, ge=1)
    """Workers that share one sequence."""

    num_workers: int = number(8, ge=1)
    """Processes that run reward functions, at most; one is started first, the others when it does not keep up."""

    memory_limit_mb: int | None = number(4096, ge=1)
    """MiB that a reward function may take in its process; null sets no limit."""

    reward_manager: str = plugin("reward_manager", "naive", is_open=True)
    """What runs reward functions over a batch."""

    reward_manager_source: str | None = None
    """Old switch; a module given below takes precedence over the name."""

    reward_manager_module: CustomClassConfig = field(default_factory=CustomClassConfig)
    """Reward manager class from a file."""

    reward_kwargs: dict[str, Any] = free_form()
    """Arguments of the reward manager, for example the overlong penalty."""

    timeout: float = number(300.0, gt=0)
    """Deadline of one call of the reward function in seconds; a later one is killed and counts as missing."""

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

    profiler: RoleProfilerConfig = field(default_factory=RoleProfilerConfig)
    """Profiling of this role."""
