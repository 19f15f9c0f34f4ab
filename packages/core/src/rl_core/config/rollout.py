"""``actor_rollout_ref.rollout.*``: how responses are sampled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rl_core.config.agent import AgentConfig, MultiTurnConfig
from rl_core.config.node import MISSING, Node, choice, free_form, number, plugin


@dataclass
class ValidationSamplingConfig(Node):
    """How responses are sampled in validation."""

    n: int = number(1, ge=1)
    """Responses per prompt."""

    temperature: float = number(0.0, ge=0)
    """Sampling temperature; 0 takes the most likely token."""

    top_p: float = number(1.0, gt=0, le=1)
    """Sample from the smallest set of tokens with this probability; 1 samples from all."""

    top_k: int = number(-1, ge=-1)
    """Sample from this many likeliest tokens; -1 samples from all."""

    do_sample: bool | None = None
    """Sample at ``temperature`` (true) or take the most likely token (false); null samples when the temperature is
    above 0."""


@dataclass
class WeightSyncConfig(Node):
    """How new weights reach the generation engine."""

    backend: str | None = None
    """Transport by name; null and ``naive`` take the best resharding that is installed for the pairing."""

    update_weights_bucket_megabytes: int = number(2048, ge=1)
    """Weights travel in buckets of this size; larger is faster and needs more memory on both sides."""

    engine_kwargs: dict[str, Any] = free_form()
    """Settings of the transport, passed as they are."""

    custom_backend_module: str | None = None
    """Module with a transport of your own."""


@dataclass
class TraceConfig(Node):
    """Tracing of single rollouts."""

    backend: str | None = None
    """Tracer by name; null traces nothing."""

    token2text: bool = False
    """Trace decoded text beside the ids."""

    max_samples_per_step_per_worker: int | None = number(None, ge=1)
    """Rollouts traced per step and worker; null traces all."""


@dataclass
class RolloutConfig(Node):
    """The generation engine and its sampling parameters."""

    name: str = plugin("rollout", MISSING)
    """Generation engine (rollout plugin) by name; required."""

    mode: str = choice("async", "async")
    """Engines answer single requests asynchronously; there is no other mode."""

    nnodes: int = number(0, ge=0)
    """Nodes of a pool of its own for generation; 0 shares the trainer's devices."""

    n_gpus_per_node: int | None = number(None, ge=1)
    """Workers per node of that pool; null takes the trainer's."""

    n: int = number(1, ge=1)
    """Responses per prompt, the group size."""

    greedy_baseline: bool | None = None
    """Draw one greedy response more to each prompt, in the same generation, whose reward is the baseline of ``remax``. It is
    scored and logged, never trained on. null draws it when the advantage estimator needs it."""

    temperature: float = number(1.0, ge=0)
    """Sampling temperature. The training engine divides its logits by it too."""

    top_p: float = number(1.0, gt=0, le=1)
    """Sample from the smallest set of tokens with this probability. Below 1 the sampler's distribution is no longer
    the policy's, which the parity metrics will say."""

    top_k: int = number(-1, ge=-1)
    """Sample from this many likeliest tokens; -1 samples from all. See ``top_p``."""

    do_sample: bool = True
    """Old switch for sampling: ``temperature`` alone decides, 0 is greedy."""

    stop: list[str] = field(default_factory=list)
    """Strings that end a response once they stand in its text."""

    stop_token_ids: list[int] = field(default_factory=list)
    """Tokens that end a response, besides the model's own end-of-sequence tokens; they are part of it."""

    min_tokens: int = number(0, ge=0)
    """No end of sequence before so many response tokens."""

    ignore_eos: bool = False
    """Sample on past the end-of-sequence token, up to the length limit (for measurements)."""

    seed: int | None = None
    """Seed of the draws; null takes ``trainer.seed``. A draw depends on (seed, uid, position) alone."""

    full_determinism: bool = False
    """Ask the engine for kernels that give the same result in any batch."""

    prompt_length: int | None = number(None, ge=1)
    """Longest prompt in tokens; null takes ``data.max_prompt_length``."""

    response_length: int | None = number(None, ge=1)
    """Longest response in tokens; null takes ``data.max_response_length``."""

    gpu_memory_utilization: float = number(0.5, gt=0, le=1)
    """Share of a device's memory for the engine's weights and cache while it generates. Lower it when training
    resumes with an out-of-memory error; too low leaves a small cache and slow generation."""

    tensor_model_parallel_size: int = number(1, ge=1)
    """Workers that share one engine replica by slicing its weights."""

    data_parallel_size: int = number(1, ge=1)
    """Data-parallel workers inside one replica, for mixture-of-experts models."""

    expert_parallel_size: int = number(1, ge=1)
    """Workers that share the experts of one replica."""

    pipeline_model_parallel_size: int = number(1, ge=1)
    """Workers that share one replica by layers."""

    max_num_batched_tokens: int = number(8192, ge=1)
    """Tokens an engine step may process."""

    max_model_len: int | None = number(None, ge=1)
    """Longest sequence; null takes prompt length plus response length."""

    max_num_seqs: int = number(256, ge=1)
    """Sequences in flight in one replica."""

    enforce_eager: bool = False
    """Do without captured graphs: slower, starts faster, needs less memory."""

    cudagraph_capture_sizes: list[int] | None = None
    """Batch sizes graphs are captured for; null lets the engine choose."""

    enable_chunked_prefill: bool = True
    """Mix the prompts' pieces with decoding."""

    enable_prefix_caching: bool = True
    """Reuse the cache of shared prefixes; reset at every weight update."""

    free_cache_engine: bool = True
    """Free the engine's cache and weights between generation phases."""

    load_format: str = "dummy"
    """How the engine loads its first weights; ``dummy`` leaves them to the first synchronisation."""

    layered_summon: bool = False
    """Gather weights layer by layer: slower, less memory."""

    logprobs_mode: str = "processed_logprobs"
    """Which log-probs the engine returns: after temperature, top-p and top-k, or raw."""

    calculate_log_probs: bool = True
    """Return the log-probs of sampled tokens; the parity metrics need them."""

    dtype: str = "bfloat16"
    """Number format of the engine's weights."""

    quantization: str | None = None
    """Quantisation of the engine's weights by name."""

    quantization_config_file: str | None = None
    """File with its settings."""

    scheduling_policy: str = "fcfs"
    """Order in which the engine admits requests."""

    disable_log_stats: bool = True
    """Silence the engine's own statistics."""

    skip_tokenizer_init: bool = True
    """Let the engine do without a tokenizer; ids go in and out."""

    multi_stage_wake_up: bool = False
    """Old switch for staged wake-up: weights and cache are always woken in stages."""

    over_sample_rate: float = number(0.0, ge=0)
    """Old switch for spare rollouts."""

    log_prob_micro_batch_size: int | None = number(None, ge=1)
    """Responses per pass that recomputes log-probs, over all workers together; use the next key."""

    log_prob_micro_batch_size_per_gpu: int | None = number(None, ge=1)
    """Responses per pass that recomputes log-probs on one worker."""

    log_prob_use_dynamic_bsz: bool | None = None
    """Pack those passes by tokens; null turns it on when no micro-batch size is given."""

    log_prob_max_token_len_per_gpu: int | None = number(None, ge=1)
    """Tokens per such pass on one worker; null takes the actor's."""

    val_kwargs: ValidationSamplingConfig = field(default_factory=ValidationSamplingConfig)
    """Sampling in validation."""

    engine_kwargs: dict[str, Any] = free_form()
    """Per engine name, arguments that go to that engine as they are."""

    multi_turn: MultiTurnConfig = field(default_factory=MultiTurnConfig)
    """Conversations with tools."""

    agent: AgentConfig = field(default_factory=AgentConfig)
    """Agent loops."""

    checkpoint_engine: WeightSyncConfig = field(default_factory=WeightSyncConfig)
    """Weight synchronisation."""

    trace: TraceConfig = field(default_factory=TraceConfig)
    """Tracing of single rollouts."""

    router_config_path: str | None = None
    """File with the settings of a router between replicas."""

    enable_rollout_routing_replay: bool = False
    """Return the experts chosen for each token, so that training can replay them."""

    moe_load_balance_metrics_interval: int = number(0, ge=0)
    """Steps between reports of expert load; 0 reports none."""

    prometheus: dict[str, Any] = free_form()
    """Export of engine statistics."""

    disaggregation: dict[str, Any] = free_form()
    """Separate engines for prompts and decoding."""

    profiler: dict[str, Any] = free_form()
    """Profiling of this role."""
