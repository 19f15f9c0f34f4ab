"""From a role's section to DeepSpeed's own configuration, with a user's merged in.

A user's key that says what a key of ours decides is refused by name, also where both agree: two sources of one number are
how runs go wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rl_core.errors import ConfigError

from rl_backend_deepspeed.config import DeepSpeedConfig

_SECTION: Final = "deepspeed_config."

_OURS: Final[Mapping[str, str]] = {
    "train_batch_size": "data.train_batch_size",
    "train_micro_batch_size_per_gpu": "ppo_micro_batch_size_per_gpu",
    "gradient_accumulation_steps": "ppo_micro_batch_size_per_gpu and ppo_mini_batch_size",
    "managed_gradient_accumulation": "nothing: the engine says when a step is due",
    "gradient_allreduce_op": "nothing: gradients are sums",
    "gradient_predivide_factor": "nothing: gradients are sums",
    "prescale_gradients": "nothing: gradients are sums",
    "gradient_clipping": "grad_clip",
    "optimizer": "optim.optimizer, optim.lr, optim.betas, optim.weight_decay and optim.override_optimizer_config",
    "scheduler": "optim.lr_scheduler_type and optim.lr_warmup_steps",
    "fp16": "deepspeed_config.dtype, which is bf16 or fp32",
    "amp": "deepspeed_config.dtype",
    "bf16": "deepspeed_config.dtype",
    "bfloat16": "deepspeed_config.dtype",
    "torch_autocast": "deepspeed_config.dtype",
    "data_types": "deepspeed_config.model_dtype and deepspeed_config.dtype",
    "communication_data_type": "deepspeed_config.reduce_dtype",
    "seq_parallel_communication_data_type": "nothing: this backend shares no sequences",
    "sequence_parallel_size": "nothing: this backend shares no sequences",
    "tensor_parallel": "nothing: this backend has no tensor parallelism",
    "pipeline": "nothing: this backend has no pipeline parallelism",
    "hybrid_engine": "actor_rollout_ref.rollout.name",
    "activation_checkpointing": "model.enable_gradient_checkpointing",
    "compile": "nothing: DeepCompile needs DeepSpeed's own accumulation of gradients",
    "zero_optimization.stage": "deepspeed_config.zero_stage",
    "zero_optimization.reduce_bucket_size": "deepspeed_config.reduce_bucket_size",
    "zero_optimization.allgather_bucket_size": "deepspeed_config.allgather_bucket_size",
    "zero_optimization.stage3_prefetch_bucket_size": "deepspeed_config.stage3_prefetch_bucket_size",
    "zero_optimization.prefetch_bucket_size": "deepspeed_config.stage3_prefetch_bucket_size",
    "zero_optimization.stage3_param_persistence_threshold": "deepspeed_config.stage3_param_persistence_threshold",
    "zero_optimization.param_persistence_threshold": "deepspeed_config.stage3_param_persistence_threshold",
    "zero_optimization.stage3_max_live_parameters": "deepspeed_config.stage3_max_live_parameters",
    "zero_optimization.max_live_parameters": "deepspeed_config.stage3_max_live_parameters",
    "zero_optimization.stage3_max_reuse_distance": "deepspeed_config.stage3_max_reuse_distance",
    "zero_optimization.max_reuse_distance": "deepspeed_config.stage3_max_reuse_distance",
    "zero_optimization.sub_group_size": "deepspeed_config.sub_group_size",
    "zero_optimization.compute_grad_norm": "nothing: the engine takes the norm",
    "zero_optimization.offload_optimizer": "deepspeed_config.optimizer_offload, which moves it between phases",
    "zero_optimization.offload_param": "deepspeed_config.param_offload, which moves it between phases",
    "zero_optimization.cpu_offload": "deepspeed_config.optimizer_offload",
    "zero_optimization.cpu_offload_params": "deepspeed_config.param_offload",
    "zero_optimization.overlap_comm": "nothing: stage 1 adds gradients up when a step is due",
    "zero_optimization.zenflow": "nothing: ZenFlow takes steps of its own",
    "zero_optimization.zero_hpz_partition_size": "nothing: one copy of the model is cut over all workers",
    "zero_optimization.mics_shard_size": "nothing: one copy of the model is cut over all workers",
    "zero_optimization.zero_quantized_weights": "deepspeed_config.dtype",
    "zero_optimization.zero_quantized_nontrainable_weights": "deepspeed_config.dtype",
    "zero_optimization.zero_quantized_gradients": "deepspeed_config.reduce_dtype",
}
"""A key of DeepSpeed's that is not a user's to set -> the key of ours that is."""

_PASSED_ON: Final = frozenset(
    {
        *("zero_optimization", "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "aio"),
        *(
            "comms_logger",
            "flops_profiler",
            "wall_clock_breakdown",
            "memory_breakdown",
            "dump_state",
            "steps_per_print",
        ),
        *("tensorboard", "wandb", "csv_monitor", "comet"),
    }
)
"""Keys of DeepSpeed's that change no number of a run; it would take one that it does not know without a word."""


def user_settings(options: DeepSpeedConfig) -> dict[str, Any]:
    """The user's own DeepSpeed configuration: file, and over it the mapping.

    Raises:
        ConfigError: the file cannot be read, or a key says what one of ours decides, or is not passed on.
    """
    found: dict[str, Any] = {}
    if options.config_file is not None:
        found = _read(Path(options.config_file))
    found = _merged(found, options.ds_config or {})
    for key, ours in _OURS.items():
        value: Any = found
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is not None:
            msg = (
                f"the DeepSpeed configuration ({_SECTION}config_file, {_SECTION}ds_config) sets {key} = {value!r}, which is "
                f"not its to decide. Remove it and set instead: {ours}"
            )
            raise ConfigError(msg)
    if unknown := sorted(found.keys() - _PASSED_ON):
        msg = (
            f"the DeepSpeed configuration ({_SECTION}config_file, {_SECTION}ds_config) sets {unknown[0]}, which this engine "
            f"does not pass on; it passes on {', '.join(sorted(_PASSED_ON))}"
        )
        raise ConfigError(msg)
    if not isinstance(found.get("zero_optimization", {}), Mapping):
        msg = (
            f"the DeepSpeed configuration ({_SECTION}config_file, {_SECTION}ds_config) has {found['zero_optimization']!r} as "
            "zero_optimization, which is a section of keys"
        )
        raise ConfigError(msg)
    return found


def deepspeed_settings(options: DeepSpeedConfig, *, bf16: bool) -> dict[str, Any]:
    """The whole configuration that ``deepspeed.initialize`` gets.

    Args:
        options: the role's section.
        bf16: whether the model computes in bfloat16.

    Raises:
        ConfigError: see ``user_settings``.
    """
    stage = options.zero_stage
    zero: dict[str, Any] = {
        "stage": stage,
        "reduce_bucket_size": options.reduce_bucket_size,
        "overlap_comm": False,
    }
    if stage == 3:
        zero |= {
            "stage3_prefetch_bucket_size": options.stage3_prefetch_bucket_size,
            "stage3_param_persistence_threshold": options.stage3_param_persistence_threshold,
            "stage3_max_live_parameters": options.stage3_max_live_parameters,
            "stage3_max_reuse_distance": options.stage3_max_reuse_distance,
            "sub_group_size": options.sub_group_size,
        }
    else:
        # The engine has taken the norm already.
        zero |= {"allgather_bucket_size": options.allgather_bucket_size, "compute_grad_norm": False}
    own: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "managed_gradient_accumulation": False,
        "gradient_clipping": 0.0,
        "gradient_allreduce_op": "mean" if stage == 3 else "sum",
        "bf16": {"enabled": bf16},
        "data_types": {"grad_accum_dtype": "fp32"},
        "communication_data_type": "bf16" if options.reduce_dtype in ("bf16", "bfloat16") else "fp32",
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 2**31,
        "zero_optimization": zero,
    }
    return _merged(user_settings(options), own)


def check_options(options: DeepSpeedConfig, *, is_trained: bool, bf16: bool) -> None:
    """Refuse combinations that DeepSpeed does not have.

    Raises:
        ConfigError: names the key.
    """
    stage = options.zero_stage
    if stage not in (0, 1, 2, 3):
        msg = f"{_SECTION}zero_stage is {stage!r}; choose 1, 2 or 3, or 0 for a role that is not trained"
        raise ConfigError(msg)
    if not is_trained:
        return
    if stage == 0:
        msg = (
            f"{_SECTION}zero_stage is 0 for a role that is trained: without ZeRO, DeepSpeed keeps no float32 weights beside "
            "those it computes with. Choose 1, which takes the same steps and less memory"
        )
        raise ConfigError(msg)
    if options.model_dtype not in ("fp32", "float32"):
        msg = (
            f"{_SECTION}model_dtype is {options.model_dtype!r}, but DeepSpeed's optimizers change float32 weights. Leave it "
            f"at fp32; {_SECTION}dtype=bf16 computes in bfloat16"
        )
        raise ConfigError(msg)
    if stage == 1 and bf16:
        msg = (
            f"{_SECTION}zero_stage is 1 with bfloat16 computation, for which DeepSpeed has an optimizer of another kind that "
            "this engine does not drive. Choose 2, which takes the same steps and less memory, or dtype=fp32"
        )
        raise ConfigError(msg)


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        msg = f"{_SECTION}config_file is {str(file)!r}, which cannot be read as JSON: {error}"
        raise ConfigError(msg) from error
    if not isinstance(found, dict):
        msg = f"{_SECTION}config_file is {str(file)!r}, which holds a {type(found).__name__}; DeepSpeed's is a JSON object"
        raise ConfigError(msg)
    return found


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both, ``above`` winning, sections key by key."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged
