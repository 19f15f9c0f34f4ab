"""Plugins: what they say about themselves (records, hookspecs) and how they are found (registry).

Importing this package loads nothing heavier than pluggy.
"""

from __future__ import annotations

from rl_core.plugins.distributions import Distribution, Status
from rl_core.plugins.hookspecs import ENTRY_POINT_GROUP, HOOK_API, PROJECT_NAME, hookimpl
from rl_core.plugins.lookup import Entry
from rl_core.plugins.records import (
    KINDS,
    MOUNT_POINTS,
    RECORD_CLASSES,
    AdvantageRecord,
    AgentLoopRecord,
    BackendRecord,
    CommandRecord,
    DatasetRecord,
    DispatchModeRecord,
    KLEstimatorRecord,
    LossAggregationRecord,
    OptimizerRecord,
    PolicyLossRecord,
    RecipeRecord,
    Record,
    ReshardingRecord,
    RewardManagerRecord,
    RewardModelRecord,
    RewardRecord,
    RolloutRecord,
    SamplerRecord,
    ToolParserRecord,
    ToolRecord,
    TrackerRecord,
    kind_label,
)
from rl_core.plugins.registry import Registry, get_registry, reset_registry
from rl_core.plugins.selection import Selection
from rl_core.plugins.tables import compare_tables

__all__ = [
    "ENTRY_POINT_GROUP",
    "HOOK_API",
    "KINDS",
    "MOUNT_POINTS",
    "PROJECT_NAME",
    "RECORD_CLASSES",
    "AdvantageRecord",
    "AgentLoopRecord",
    "BackendRecord",
    "CommandRecord",
    "DatasetRecord",
    "DispatchModeRecord",
    "Distribution",
    "Entry",
    "KLEstimatorRecord",
    "LossAggregationRecord",
    "OptimizerRecord",
    "PolicyLossRecord",
    "RecipeRecord",
    "Record",
    "Registry",
    "ReshardingRecord",
    "RewardManagerRecord",
    "RewardModelRecord",
    "RewardRecord",
    "RolloutRecord",
    "SamplerRecord",
    "Selection",
    "Status",
    "ToolParserRecord",
    "ToolRecord",
    "TrackerRecord",
    "compare_tables",
    "get_registry",
    "hookimpl",
    "kind_label",
    "reset_registry",
]
