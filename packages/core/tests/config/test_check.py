from __future__ import annotations

import re

import pytest
from rl_core.config.check import BATCH, ENGINES, INERT, POOLS, SPELLING, STEPS, Finding, Report, check_config
from rl_core.errors import ConfigError

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"
SIZES = ["data.train_batch_size=8", f"{ACTOR}.ppo_mini_batch_size=4", f"{ACTOR}.ppo_micro_batch_size_per_gpu=2"]


@pytest.fixture
def check(composed, registry):
    def check(*overrides, rows=None):
        return check_config(composed("actor_rollout_ref.model.path=/m", *overrides), None, registry, rows)

    return check


def test_three_batch_sizes_in_words_and_numbers(check):
    report = check("algorithm.adv_estimator=grpo", *SIZES, f"{ROLLOUT}.n=4", "trainer.n_gpus_per_node=8")
    assert report.errors == []
    assert report.lines(BATCH) == [
        "data.train_batch_size: 8 prompts per step, x rollout.n (4) = 32 responses.",
        "actor: ppo_mini_batch_size: 4 prompts per optimizer step = 16 responses; 2 mini-batches x 1 epoch = "
        "2 optimizer steps per step.",
        "actor: 2 responses per worker (8 data-parallel); ppo_micro_batch_size_per_gpu: 2 responses per pass = "
        "1 accumulation step. This size changes memory and speed only.",
    ]


def test_dynamic_sampling_is_explained(check):
    filtered = [f"{ROLLOUT}.n=4", "algorithm.filter_groups.enable=true", "data.gen_batch_size=12"]
    report = check("algorithm.adv_estimator=grpo", *SIZES, *filtered, "trainer.total_epochs=3", rows=20)
    assert report.lines(BATCH)[1] == (
        "data.gen_batch_size: 12 prompts per generation, x rollout.n (4) = 48 responses; a step makes generations until "
        "8 prompts have rewards that differ."
    )
    # One generation an epoch: 36 prompts in all.
    assert report.lines(STEPS)[0].endswith("x 3 epochs, 4 steps in all.")
    assert "so many steps are the most" in report.lines(STEPS)[1]


def test_critic_is_explained_where_there_is_one(check):
    lines = check(*SIZES).lines(BATCH)
    assert len([line for line in lines if line.startswith("critic: ")]) == 2


def test_packing_by_tokens_is_explained(check):
    lines = check("algorithm.adv_estimator=mine", "data.train_batch_size=8", f"{ACTOR}.ppo_mini_batch_size=8").lines(
        BATCH
    )
    assert "packed into passes of at most 16,384 tokens" in lines[-1]


def test_uneven_shares_are_a_warning(check):
    report = check(
        "algorithm.adv_estimator=mine",
        "data.train_batch_size=3",
        f"{ACTOR}.ppo_mini_batch_size=3",
        "trainer.n_gpus_per_node=2",
    )
    assert [str(warning) for warning in report.warnings] == [
        "actor: 3 responses of a mini-batch over 2 workers do not divide: 1 of them get one more, the others wait."
    ]


def test_sizes_that_do_not_fit_are_errors_and_nothing_is_explained(check):
    report = check("algorithm.adv_estimator=mine", *SIZES, "data.train_batch_size=10")
    assert report.lines(BATCH) == []
    assert "10 is not divisible by 4" in str(report.errors[0])
    with pytest.raises(ConfigError, match="10 is not divisible by 4"):
        report.raise_if_failed()


def test_a_sound_configuration_does_not_raise(check):
    check(*SIZES).raise_if_failed()


def test_steps_are_counted_when_the_rows_are_known(check):
    report = check(*SIZES, "trainer.total_epochs=3", "trainer.save_freq=4", "trainer.test_freq=4", rows=20)
    assert report.lines(STEPS) == [
        "20 rows / 8 = 2 steps per epoch, 4 rows left over per epoch; x 3 epochs, 6 steps in all.",
        "checkpoint after step 4, 6.",
        "validation after step 0, 4, 6 (0 is before training).",
    ]


def test_many_steps_are_shortened(check):
    report = check(*SIZES, "trainer.total_epochs=50", "trainer.save_freq=1", rows=16)
    assert report.lines(STEPS)[1] == "checkpoint after step 1, 2, 3, ..., 99, 100 (100 times)."


def test_a_limit_beyond_the_epochs_is_mentioned(check):
    report = check(*SIZES, "trainer.total_epochs=1", "trainer.total_training_steps=9", rows=16)
    assert "trainer.total_training_steps is 9, but the epochs end after 2 steps." in report.lines(STEPS)


def test_too_few_rows_are_an_error(check):
    assert "exceeds the 3 training rows" in str(check(*SIZES, rows=3).errors[0])


def test_unknown_rows_are_said_to_be_unknown(check):
    assert check(*SIZES, "trainer.total_training_steps=5").lines(STEPS) == [
        "30 epochs, or 5 steps if that is less; the number of rows is not known yet."
    ]


def test_engines_and_pairing(check):
    lines = check(*SIZES).lines(ENGINES)
    assert "backend 'fsdp', capabilities: cpu, lora, sequence_parallel." in lines
    assert any("resharding 'fast'" in line for line in lines)


def test_shared_pool_never_idles(check):
    runtime, line = check(*SIZES, "trainer.n_gpus_per_node=2").lines(POOLS)
    assert runtime == "runtime: 2 processes of a Ray cluster."
    assert line.startswith("2 workers shared by actor, rollout, critic: every phase uses all of them")


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ([], "in this process on the CPU; one process of a Ray cluster where there is CUDA"),
        (["trainer.device=cpu"], "in this process"),
        (["trainer.runtime=ray"], "one process of a Ray cluster"),
        (["trainer.runtime=local", "trainer.n_gpus_per_node=3"], "3 threads of this process"),
        (["trainer.nnodes=2"], "2 processes of a Ray cluster"),
        (
            ["critic.enable_resource_pool=true", "critic.nnodes=1", "critic.n_gpus_per_node=2"],
            "3 processes of a Ray cluster",
        ),
    ],
)
def test_where_the_workers_will_live(check, asked, found):
    assert check(*SIZES, *asked).lines(POOLS)[0] == f"runtime: {found}."


def test_phases_that_pools_compute_at_once_are_named(check):
    asked = ["critic.enable_resource_pool=true", "critic.nnodes=1", "critic.n_gpus_per_node=1"]
    *_, actor, critic, together = check(*SIZES, *asked).lines(POOLS)
    assert actor == "shared pool, 1 worker (actor, rollout): waits during critic update."
    assert critic == "critic_pool, 1 worker (critic): waits during generation, actor update."
    assert together == "old log-probs, values: begin together; pools that are done wait for the slowest."


def test_split_pools_say_what_each_waits_for(check):
    pools = [f"{ROLLOUT}.nnodes=1", f"{ROLLOUT}.n_gpus_per_node=2"]
    lines = check("algorithm.adv_estimator=mine", *SIZES, *pools).lines(POOLS)
    assert lines == [
        "shared pool, 1 worker (actor): waits during generation.",
        "rollout_pool, 2 workers (rollout): waits during old log-probs, actor update.",
    ]
    lines = check("algorithm.adv_estimator=mine", *SIZES, *pools, "trainer.v1.trainer_mode=separate_async").lines(POOLS)
    assert all("waits only when the batches in flight run out (separate_async)" in line for line in lines)


@pytest.mark.parametrize(
    ("asked", "warning"),
    [
        ([f"{ROLLOUT}.nnodes=1", "trainer.runtime=local"], r"rollout \(1 workers\) asked for workers of their own"),
        (
            [f"{ROLLOUT}.nnodes=2", "trainer.n_gpus_per_node=2"],
            "gives generation 4 workers of its own, but weights cannot be sent from one pool to another",
        ),
    ],
)
def test_a_run_that_this_version_cannot_place_is_said_so(check, asked, warning):
    report = check("algorithm.adv_estimator=mine", *SIZES, *asked)
    (found,) = map(str, report.blockers)
    assert re.search(warning, found)


def test_inert_keys_and_other_spellings_get_a_line_each(check):
    report = check(*SIZES, "data.filter_prompts=true", f"{ACTOR}.strategy=fsdp2", f"{ACTOR}.use_torch_compile=false")
    assert report.lines(SPELLING) == [f"{ACTOR}.strategy=fsdp2 is another name of backend 'fsdp'."]
    inert = report.lines(INERT)
    assert any(line.startswith("data.filter_prompts has no effect") for line in inert)
    assert f"{ACTOR}.use_torch_compile has no effect: this backend never compiles." in inert


def test_a_run_prints_warnings_spellings_and_inert_keys_when_it_starts(check):
    lines = check(*SIZES, "algorithm.adv_estimator=grpo", f"{ACTOR}.strategy=fsdp2", "data.filter_prompts=true")
    starts = [line.split(maxsplit=2)[:2] for line in lines.start_lines()]
    assert starts == [["warning:", "rollout.n"], ["note:", f"{ACTOR}.strategy=fsdp2"], ["note:", "data.filter_prompts"]]


def test_contradictions_are_in_the_report(check):
    report = check(*SIZES, "algorithm.use_kl_in_reward=true", f"{ACTOR}.use_kl_loss=true")
    assert [error.topic for error in report.errors] == ["contradictions"]


def test_a_report_without_errors_passes():
    Report(warnings=[Finding("a", "b")]).raise_if_failed()
