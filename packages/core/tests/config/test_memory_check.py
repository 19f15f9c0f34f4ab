"""Memory by phase, with engines that answer round numbers."""

import sys
import types
from dataclasses import dataclass

import pytest
from rl_core import builtins
from rl_core.config import compose
from rl_core.config.check import check_config
from rl_core.config.compose import compose_leniently
from rl_core.config.layout import RM, SFT
from rl_core.config.memory_check import check_memory
from rl_core.config.memory_plan import GIB, PROCESS_BYTES, memory_plan
from rl_core.config.memory_question import MemoryEstimate
from rl_core.config.phase_table import Part, Phase
from rl_core.config.report import MEMORY, Report
from rl_core.errors import ConfigError
from rl_core.plugins import Registry, Selection
from rl_core.plugins.records import BackendRecord, RolloutRecord

ANSWERS = "memory_answers"
PROCESS = PROCESS_BYTES
ROLES = ("actor", "ref", "critic", "reward_model")


@dataclass
class Shards:
    """An engine's own section."""

    param_offload: bool = False
    """Weights leave."""

    optimizer_offload: bool = False
    """The optimizer's state leaves."""


def _answers():
    module = types.ModuleType(ANSWERS)
    module.questions = []

    def training(question):
        module.questions.append(question)
        if question.model.path == "unknown":
            msg = "there is no folder unknown"
            raise ConfigError(msg)
        states = {"parameters": 2 * GIB}
        if question.optim is not None:
            states |= {"gradients": 2 * GIB, "optimizer": 4 * GIB}
        return MemoryEstimate(states, {"update": 10 * GIB, "forward": 3 * GIB})

    def rollout(question):
        module.questions.append(question)
        if question.device_bytes is None:
            return MemoryEstimate({"weights": GIB}, {"generate": GIB})
        cache = int(question.rollout.gpu_memory_utilization * question.device_bytes) - 2 * GIB
        return MemoryEstimate({"weights": GIB, "kv_cache": cache}, {"generate": GIB}, cache // (2**20))

    module.training, module.rollout, module.Shards = training, rollout, Shards
    return module


@pytest.fixture
def answers(monkeypatch):
    module = _answers()
    monkeypatch.setitem(sys.modules, ANSWERS, module)
    return module


@pytest.fixture
def registry(answers):
    registry = Registry(Selection())
    registry.register_distribution("rl-core", "1.0", builtins)
    target = f"{ANSWERS}:training"
    registry.register_distribution(
        "rl-answers",
        "1.0",
        [
            BackendRecord(
                name="fsdp",
                target=target,
                summary="Answers.",
                capabilities=frozenset({"cpu", "lora", "sequence_parallel"}),
                config=f"{ANSWERS}:Shards",
                config_key="fsdp_config",
                mount=ROLES,
                memory=f"{ANSWERS}:training",
            ),
            BackendRecord(name="silent", target=target, summary="Says nothing."),
            RolloutRecord(
                name="vllm",
                target=target,
                summary="Answers.",
                capabilities=frozenset({"sleep", "cpu", "tensor_parallel"}),
                memory=f"{ANSWERS}:rollout",
            ),
        ],
    )
    return registry


@pytest.fixture
def tree(registry):
    def tree(*overrides, layout=None):
        if layout is not None:
            return compose_leniently(list(overrides), registry=registry, layout=layout).config.tree
        first = ["actor_rollout_ref.rollout.name=vllm", "actor_rollout_ref.model.path=m", "critic.model.path=m"]
        first += ["trainer.n_gpus_per_node=1", "algorithm.adv_estimator=grpo", "data.train_batch_size=256"]
        return compose([*first, *overrides], registry=registry).tree

    return tree


def rows(plan, pool=0):
    return {row.phase: row for row in plan.pools[pool].phases}


def test_a_step_of_one_worker_by_hand(tree, registry):
    found = rows(memory_plan(tree(), registry, 20 * GIB))
    # weights 2 and optimizer 4 always; gradients in the update alone; the generator sleeps when it is not needed
    assert list(found) == [Phase.SYNC_WEIGHTS, Phase.GENERATE, Phase.LOG_PROB, Phase.UPDATE_ACTOR]
    assert found[Phase.SYNC_WEIGHTS].total == (6 + 1 + 1) * GIB + PROCESS  # a bucket as large as the weights
    assert found[Phase.GENERATE].total == (6 + 1 + 8 + 1) * GIB + PROCESS
    assert found[Phase.LOG_PROB].total == (6 + 3) * GIB + PROCESS
    assert found[Phase.UPDATE_ACTOR].total == (8 + 10) * GIB + PROCESS


def test_the_generator_hears_what_lies_beside_it(tree, registry, answers):
    memory_plan(tree(), registry, 20 * GIB)
    assert answers.questions[-1].beside_bytes == 6 * GIB + PROCESS


def test_offloaded_states_are_gone_from_the_other_phases(tree, registry):
    section = "actor_rollout_ref.actor.fsdp_config"
    found = rows(
        memory_plan(tree(f"{section}.param_offload=true", f"{section}.optimizer_offload=true"), registry, 20 * GIB)
    )
    assert (Part.ACTOR, "optimizer") not in found[Phase.LOG_PROB].states
    assert found[Phase.GENERATE].states.keys() == {(Part.ROLLOUT, "weights"), (Part.ROLLOUT, "kv_cache")}
    assert found[Phase.UPDATE_ACTOR].total == 18 * GIB + PROCESS


def test_a_generator_that_keeps_its_memory_is_in_every_phase(tree, registry):
    found = rows(memory_plan(tree("actor_rollout_ref.rollout.free_cache_engine=false"), registry, 20 * GIB))
    assert found[Phase.UPDATE_ACTOR].total == (18 + 9) * GIB + PROCESS


def test_every_role_has_its_phases_and_its_process(tree, registry):
    more = ["algorithm.adv_estimator=gae", "actor_rollout_ref.actor.use_kl_loss=true", "reward_model.enable=true"]
    found = rows(memory_plan(tree(*more, "reward_model.model.path=m"), registry, 80 * GIB))
    assert list(found) == [
        *(Phase.SYNC_WEIGHTS, Phase.GENERATE, Phase.LOG_PROB, Phase.REF_LOG_PROB, Phase.VALUES, Phase.REWARD_MODEL),
        *(Phase.UPDATE_CRITIC, Phase.UPDATE_ACTOR),
    ]
    assert found[Phase.UPDATE_ACTOR].total == (8 + 10 + 2 + 6 + 2) * GIB + 3 * PROCESS


def test_a_pool_of_its_own_has_its_own_devices(tree, registry):
    own = ["critic.enable_resource_pool=true", "critic.nnodes=1", "critic.n_gpus_per_node=2"]
    plan = memory_plan(tree("algorithm.adv_estimator=gae", *own), registry, 80 * GIB)
    assert [pool.pool.name for pool in plan.pools] == ["global_pool", "critic_pool"]
    assert list(rows(plan, 1)) == [Phase.VALUES, Phase.UPDATE_CRITIC]
    assert rows(plan, 1)[Phase.UPDATE_CRITIC].total == 18 * GIB + PROCESS


def test_questions_carry_sizes_of_passes(tree, registry, answers):
    lengths = ["data.max_prompt_length=100", "data.max_response_length=300"]
    actor = "actor_rollout_ref.actor"
    memory_plan(tree(*lengths, f"{actor}.ppo_micro_batch_size_per_gpu=4"), registry, None)
    assert answers.questions[0].update_tokens == 4 * 400
    memory_plan(tree(*lengths, f"{actor}.ppo_max_token_len_per_gpu=300"), registry, None)
    assert answers.questions[2].update_tokens == 400  # a row over the budget runs alone
    assert answers.questions[2].accumulates
    memory_plan(tree(*lengths, f"{actor}.ppo_max_token_len_per_gpu=200000"), registry, None)
    assert not answers.questions[4].accumulates  # 256 rows of 400 tokens are one pass


def test_runs_on_a_file(tree, registry, answers):
    sft = tree("model.path=m", "trainer.n_gpus_per_node=1", layout=SFT)
    assert list(rows(memory_plan(sft, registry, None))) == [Phase.UPDATE_SFT, Phase.COMPUTE_LOSS]
    memory_plan(
        tree("model.path=m", "data.micro_batch_size_per_gpu=2", "data.max_length=50", layout=RM), registry, None
    )
    assert (answers.questions[-1].role, answers.questions[-1].update_tokens) == ("reward", 2 * 2 * 50)


def report(tree, registry):
    found = Report()
    check_memory(tree, registry, found)
    return "\n".join(found.lines(MEMORY)), "\n".join(map(str, found.warnings))


def test_the_report_has_a_table_and_the_peak(tree, registry):
    notes, warnings = report(tree("trainer.device_memory_gib=40"), registry)
    assert "global_pool, on each device: at most 26.8 of 40.0 GiB, in generate (predicted)" in notes
    assert "update_actor            18.8    10.0  actor 8.0, processes 0.8" in notes
    assert "the generator's cache holds 18,432 tokens, 18.0 sequences of 1,024 tokens at a time" in notes
    assert "asks each replica for 256" in notes
    assert "generation crawls" in warnings
    assert "rollout.gpu_memory_utilization (0.5)" in warnings


def test_what_does_not_fit_is_a_warning_that_names_keys(tree, registry):
    _, warnings = report(tree("trainer.device_memory_gib=12", "data.max_response_length=1"), registry)
    assert "update_actor is predicted to need 18.8 GiB on each device of global_pool, which has 12.0" in warnings
    assert "lower actor_rollout_ref.actor.ppo_max_token_len_per_gpu" in warnings


def test_a_cache_below_one_sequence_would_not_start(tree, registry):
    _, warnings = report(tree("trainer.device_memory_gib=4.5"), registry)
    assert "less than one sequence" in warnings


def test_an_unknown_device_is_said(tree, registry, monkeypatch):
    monkeypatch.setattr("rl_core.config.memory_check.local_device_bytes", lambda: None)
    notes, warnings = report(tree(), registry)
    assert "Set trainer.device_memory_gib to compare" in notes
    assert "the generator's cache: not known" in notes
    assert warnings == ""


def test_the_local_device_is_asked(tree, registry, monkeypatch):
    monkeypatch.setattr("rl_core.config.memory_check.local_device_bytes", lambda: 30 * GIB)
    assert "of 30.0 GiB" in report(tree(), registry)[0]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("actor_rollout_ref.model.path=unknown", "not predicted: there is no folder unknown."),
        ("trainer.device=cpu", "predicted for GPUs alone"),
        ("actor_rollout_ref.actor.strategy=silent", "not predicted for backend 'silent': it predicts no memory."),
    ],
)
def test_where_nothing_is_known_it_is_said(override, said, tree, registry):
    notes, warnings = report(tree(override), registry)
    assert said in notes
    assert warnings == ""


def test_it_is_part_of_the_report(registry):
    config = compose(["actor_rollout_ref.rollout.name=vllm", "actor_rollout_ref.model.path=m"], registry=registry)
    assert any("on each device" in line for line in check_config(config, None, registry).lines(MEMORY))
