"""Configuration: dataclasses are the single source, Hydra composes them.

``compose`` turns overrides and files into one typed, checked, read-only tree. Importing this package loads
neither Hydra nor OmegaConf; ``compose`` does.
"""

from __future__ import annotations

from rl_core.config.actor import ActorConfig, PolicyLossConfig
from rl_core.config.agent import AgentConfig, MultiTurnConfig
from rl_core.config.algorithm import AlgorithmConfig
from rl_core.config.batch_math import BatchArithmetic, batch_plan
from rl_core.config.check import Report, check_config
from rl_core.config.compose import (
    Composed,
    Composition,
    Config,
    RMConfig,
    SFTConfig,
    compose,
    compose_leniently,
    compose_request,
    compose_rm,
    compose_sft,
    to_dataclass,
)
from rl_core.config.critic import CriticConfig
from rl_core.config.data import DataConfig
from rl_core.config.layout import PPO, RM, SFT, Layout, RunTree
from rl_core.config.model import ModelConfig
from rl_core.config.node import MISSING, Node, choice, free_form, number, plugin, plugins
from rl_core.config.offline import OfflineConfig, OfflineDataConfig
from rl_core.config.optim import CheckpointConfig, OptimConfig
from rl_core.config.overrides import CliRequest, cli_help, parse_cli
from rl_core.config.printing import cfg_text, config_to_yaml, redact
from rl_core.config.ray import RayConfig
from rl_core.config.ref import RefConfig
from rl_core.config.reward import CustomRewardFunctionConfig, RewardModelConfig
from rl_core.config.rm import RMDataConfig, RMLossConfig, RMTrainerConfig
from rl_core.config.rollout import RolloutConfig
from rl_core.config.root import ActorRolloutRefConfig, PPOTrainerConfig
from rl_core.config.sampler import SamplerConfig, V1Config
from rl_core.config.schedule import StepSchedule, step_schedule
from rl_core.config.secrets import redact_override
from rl_core.config.sft import SFTDataConfig, SFTTrainerConfig
from rl_core.config.trainer import ParityConfig, RunConfig, TrainerConfig

__all__ = [
    "MISSING",
    "PPO",
    "RM",
    "SFT",
    "ActorConfig",
    "ActorRolloutRefConfig",
    "AgentConfig",
    "AlgorithmConfig",
    "BatchArithmetic",
    "CheckpointConfig",
    "CliRequest",
    "Composed",
    "Composition",
    "Config",
    "CriticConfig",
    "CustomRewardFunctionConfig",
    "DataConfig",
    "Layout",
    "ModelConfig",
    "MultiTurnConfig",
    "Node",
    "OfflineConfig",
    "OfflineDataConfig",
    "OptimConfig",
    "PPOTrainerConfig",
    "ParityConfig",
    "PolicyLossConfig",
    "RMConfig",
    "RMDataConfig",
    "RMLossConfig",
    "RMTrainerConfig",
    "RayConfig",
    "RefConfig",
    "Report",
    "RewardModelConfig",
    "RolloutConfig",
    "RunConfig",
    "RunTree",
    "SFTConfig",
    "SFTDataConfig",
    "SFTTrainerConfig",
    "SamplerConfig",
    "StepSchedule",
    "TrainerConfig",
    "V1Config",
    "batch_plan",
    "cfg_text",
    "check_config",
    "choice",
    "cli_help",
    "compose",
    "compose_leniently",
    "compose_request",
    "compose_rm",
    "compose_sft",
    "config_to_yaml",
    "free_form",
    "number",
    "parse_cli",
    "plugin",
    "plugins",
    "redact",
    "redact_override",
    "step_schedule",
    "to_dataclass",
]
