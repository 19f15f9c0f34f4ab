"""The fakes, registered through the same door as any plugin."""

from __future__ import annotations

from collections.abc import Iterable

from rl_core import hookimpl
from rl_core.plugins.records import (
    AgentLoopRecord,
    BackendRecord,
    DatasetRecord,
    Record,
    RewardManagerRecord,
    RewardRecord,
    RolloutRecord,
)

# `shared_process`: several workers may live in one process, so the local runtime can host any number of them.
_CAPABILITIES = frozenset({"cpu", "shared_process", "sleep"})
_ROLES = ("actor", "ref", "critic", "reward_model")


@hookimpl
def rl_plugins() -> Iterable[Record]:
    """The tiny model's engines, and what a run on them needs."""
    return (*_backends(), *_rollouts(), *_rewards(), *_data())


def _backends() -> tuple[Record, ...]:
    return (
        _backend("fake", "rl_testing.fakes.plain_engine:PlainEngine", "Tiny model, data parallel, float64."),
        _backend(
            "fake-pipeline",
            "rl_testing.fakes.pipeline_engine:PipelineEngine",
            "Tiny model in two pipeline stages with a vocabulary-parallel head, float64.",
        ),
    )


def _backend(name: str, target: str, summary: str) -> BackendRecord:
    return BackendRecord(
        name=name,
        target=target,
        summary=summary,
        capabilities=_CAPABILITIES,
        config="rl_testing.fakes.engine_config:FakeEngineConfig",
        config_key="fake_config",
        mount=_ROLES,
        tokenizer="rl_testing.fakes.tokenizer:load_tokenizer",
    )


def _rollouts() -> tuple[Record, ...]:
    return (
        _rollout(
            "fake",
            "rl_testing.fakes.sliced_rollout:SlicedRollout",
            "Samples from the tiny model; one replica spans several workers.",
            _CAPABILITIES | {"tensor_parallel"},
        ),
        _rollout(
            "echo",
            "rl_testing.fakes.echo_rollout:EchoRollout",
            "Repeats the prompt; no model, no log-probs.",
            _CAPABILITIES,
        ),
    )


def _rollout(name: str, target: str, summary: str, capabilities: frozenset[str]) -> RolloutRecord:
    return RolloutRecord(
        name=name,
        target=target,
        summary=summary,
        capabilities=capabilities,
        config="rl_testing.fakes.rollout_config:FakeRolloutConfig",
        config_key="fake_config",
        mount=("rollout",),
    )


def _rewards() -> tuple[Record, ...]:
    rewards = {
        "count_letter": "Share of one letter in the response; the tiny model learns it.",
        "exact_match": "1 for the ground truth itself; a dict with more to log.",
        "brevity": "Falls with the length of the response; a coroutine.",
        "abstain": "Raises on every response: all rewards are missing.",
    }
    return (
        *(
            RewardRecord(name=name, target=f"rl_testing.fakes.reward:{name}", summary=summary)
            for name, summary in rewards.items()
        ),
        RewardManagerRecord(
            name="threaded",
            target="rl_testing.fakes.reward_manager:ThreadedRewardManager",
            summary="A thread a row, from the end of its response on; a deadline.",
        ),
    )


def _data() -> tuple[Record, ...]:
    return (
        AgentLoopRecord(
            name="echo_two_turn",
            target="rl_testing.fakes.agent_loop:EchoTwoTurnLoop",
            summary="Two turns; between them a tool repeats what the policy said.",
        ),
        DatasetRecord(
            name="letters",
            target="rl_testing.fakes.dataset:LetterDataset",
            summary="Prompts without files that ask for a letter.",
        ),
    )
