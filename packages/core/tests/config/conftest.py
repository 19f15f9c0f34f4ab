"""A registry with engines like real ones: two backends with sections of their own, and three rollouts."""

from __future__ import annotations

import sys
import textwrap

import pytest
from rl_core import builtins
from rl_core.config import compose, compose_leniently
from rl_core.plugins import (
    AdvantageRecord,
    AgentLoopRecord,
    BackendRecord,
    PolicyLossRecord,
    RecipeRecord,
    Registry,
    ReshardingRecord,
    RolloutRecord,
    SamplerRecord,
    Selection,
    ToolParserRecord,
    TrackerRecord,
)

SOURCE = '''
from __future__ import annotations
from dataclasses import dataclass, field
from typing import Any, ClassVar
from collections.abc import Mapping


@dataclass
class ShardConfig:
    """Own keys of the sharding backend."""

    param_offload: bool = False
    """Park parameters on the host
    while another role works."""

    optimizer_offload: bool = False
    """Park the optimizer's state."""

    fsdp_size: int = -1
    """Workers per shard group."""

    inert_keys: ClassVar[Mapping[str, str]] = {
        "use_torch_compile": "this backend never compiles",
        "fsdp_config.fsdp_size": "one group only",
    }


@dataclass
class SliceConfig:
    """Own keys of the slicing backend."""

    tensor_model_parallel_size: int = 1
    pipeline_model_parallel_size: int = 1
    override: dict[str, Any] = field(default_factory=dict)

    def model_parallel_size(self, num_workers: int) -> int:
        return self.tensor_model_parallel_size * self.pipeline_model_parallel_size


@dataclass
class EchoConfig:
    """Own keys of the echo rollout."""

    text: str = "hello"
    """What it answers."""


@dataclass
class BadConfig:
    anything: set[int] = field(default_factory=set)


def recipe():
    return {"actor_rollout_ref": {"actor": {"clip_ratio_high": 0.28}, "rollout": {"n": 16}}}
'''

MODULE = "rl_config_fakes"
ROLES = ("actor", "ref", "critic", "reward_model")


@pytest.fixture(scope="session", autouse=True)
def _fake_module(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fakes")
    (folder / f"{MODULE}.py").write_text(textwrap.dedent(SOURCE))
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))
    sys.modules.pop(MODULE, None)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    for name in ("RL_PLUGINS", "RL_BLOCK_PLUGINS"):
        monkeypatch.delenv(name, raising=False)


def core_registry():
    # Registered by hand: what is installed around the tests, blocked or not, stays out of the messages.
    registry = Registry(Selection())
    registry.register_distribution("rl-core", "1.0", builtins)
    return registry


@pytest.fixture(scope="session")
def core_only():
    """Core's own plugins and nothing else; not to be changed."""
    return core_registry()


@pytest.fixture(scope="session")
def registry():
    """Core's plugins and the fake engines; not to be changed."""
    registry = core_registry()
    registry.register_distribution("rl-engines", "1.0", records())
    return registry


def records():
    target = f"{MODULE}:recipe"
    return [
        BackendRecord(
            name="fsdp",
            aliases=("fsdp2",),
            target=target,
            summary="Shards.",
            config=f"{MODULE}:ShardConfig",
            config_key="fsdp_config",
            mount=ROLES,
            capabilities=frozenset({"lora", "cpu", "sequence_parallel"}),
        ),
        BackendRecord(
            name="megatron",
            target=target,
            summary="Slices.",
            config=f"{MODULE}:SliceConfig",
            config_key="megatron",
            mount=ROLES,
            capabilities=frozenset({"tensor_parallel"}),
        ),
        BackendRecord(name="plain", target=target, summary="No keys of its own."),
        RolloutRecord(
            name="vllm",
            target=target,
            summary="Generates.",
            capabilities=frozenset({"tensor_parallel", "sleep", "lora"}),
        ),
        RolloutRecord(name="sglang", target=target, summary="Generates.", capabilities=frozenset({"tensor_parallel"})),
        RolloutRecord(
            name="echo",
            target=target,
            summary="Echoes.",
            config=f"{MODULE}:EchoConfig",
            mount=("rollout",),
            capabilities=frozenset({"cpu"}),
        ),
        ReshardingRecord(name="fast", target=target, summary="Fast.", backend="fsdp", rollout="vllm", transport="ipc"),
        AdvantageRecord(name="mine", target=target, summary="No needs."),
        AdvantageRecord(name="squares", target=target, summary="Weighs tokens.", needs=frozenset({"sum_pi_squared"})),
        PolicyLossRecord(name="my_loss", target=target, summary="Reads what it likes."),
        AgentLoopRecord(name="tool_agent", target=target, summary="Tools."),
        ToolParserRecord(name="hermes", target=target, summary="Tags."),
        ToolParserRecord(name="qwen3_coder", target=target, summary="XML."),
        TrackerRecord(name="wandb", target=target, summary="Web."),
        SamplerRecord(name="separate_async", target=target, summary="Apart."),
        RecipeRecord(name="higher", target=target, summary="Clip higher."),
        RecipeRecord(name="broken", target=f"{MODULE}:absent", summary="Does not load."),
    ]


@pytest.fixture
def composed(registry):
    """Compose with the fake engines; the rollout is vllm unless an override names one."""

    def composed(*overrides, **options):
        named = any("rollout.name=" in text for text in overrides)
        first = () if named or "config_name" in options else ("actor_rollout_ref.rollout.name=vllm",)
        return compose([*first, *overrides], registry=registry, **options)

    return composed


@pytest.fixture
def problems(registry):
    """What is wrong with overrides, as one text."""

    def problems(*overrides, **options):
        first = () if "config_name" in options else ("actor_rollout_ref.rollout.name=vllm",)
        composition = compose_leniently([*first, *overrides], registry=registry, **options)
        return "\n".join(map(str, composition.errors))

    return problems
