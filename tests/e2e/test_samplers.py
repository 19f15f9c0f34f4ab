"""Dynamic sampling, refills and the greedy pass on the fakes: in both schedules, resumed, and to the end of the data."""

import json
import shutil

import pytest
import torch
from fakes_training import train, write_prompts
from rl_core.errors import DataError, FilteredGroupsError
from rl_testing.fakes import tiny_model
from slow_rollouts import dumped, misbehave

pytestmark = pytest.mark.heavy

ASYNC = "trainer.v1.trainer_mode=colocate_async"
LONG = ["trainer.total_training_steps=6", "trainer.total_epochs=4", "data.max_response_length=20"]
FILTERED = ["algorithm.adv_estimator=grpo", "algorithm.filter_groups.enable=true", "data.gen_batch_size=3", *LONG]
REMAX = ["algorithm.adv_estimator=remax", *LONG]
UNTIMED = ("timing_s/", "perf/", "memory/")


def numbers(run):
    return [{key: value for key, value in step.items() if not key.startswith(UNTIMED)} for step in run.metrics]


def filter_counts(run, name):
    return [step[f"training/filter_groups/{name}"] for step in run.metrics]


def assert_equal_weights(mine, wanted):
    assert mine.policy.keys() == wanted.policy.keys()
    assert all(torch.equal(mine.policy[name], wanted.policy[name]) for name in wanted.policy)


@pytest.mark.parametrize("mode", ["trainer.v1.trainer_mode=sync", ASYNC])
def test_a_step_has_its_full_number_of_groups_that_differ(mode, tmp_path, installed_fakes):
    folder = f"trainer.rollout_data_dir={tmp_path}/rollouts"
    run = train(tmp_path, *FILTERED, "trainer.total_training_steps=3", mode, folder)

    assert len(run.metrics) == 3
    assert filter_counts(run, "kept") == [4, 4, 4]
    assert sum(filter_counts(run, "dropped_all_equal")) > 0
    for step, kept in zip(run.metrics, filter_counts(run, "discarded_surplus_groups"), strict=True):
        drawn = sum(step[f"training/filter_groups/{name}"] for name in ("kept", "dropped_all_equal")) + kept
        assert drawn == 3 * step["training/filter_groups/num_gen_batches"]
        # Every group differs, so no row has advantage 0.
        assert step["critic/advantages/max"] > 0 > step["critic/advantages/min"]
    for step in (1, 2, 3):
        groups = {}
        for line in (tmp_path / "rollouts" / f"{step}.jsonl").read_text().splitlines():
            row = json.loads(line)
            groups.setdefault(row["uid"], set()).add(row["score"])
        assert len(groups) == 4
        assert all(len(scores) == 2 for scores in groups.values())


def test_a_resumed_run_with_dynamic_sampling_is_the_one_that_was_not_stopped(tmp_path, installed_fakes):
    long = [*FILTERED, "trainer.total_training_steps=4", "trainer.resume_mode=auto"]
    straight = train(tmp_path / "straight", *long)
    train(tmp_path / "stopped", *long, "trainer.save_freq=2", "trainer.total_training_steps=2")
    resumed = train(tmp_path / "stopped", *long, "trainer.save_freq=2")

    assert [step["step"] for step in resumed.metrics] == [1, 2, 3, 4]
    assert [step | {"training/total_steps": 4} for step in numbers(resumed)] == numbers(straight)
    assert_equal_weights(resumed, straight)


def test_a_reward_model_judges_groups(tmp_path, installed_fakes, monkeypatch):
    init_weights = tiny_model.init_weights

    def with_a_score_head(config, *, value_head=False):
        weights = init_weights(config, value_head=value_head)
        return weights | ({tiny_model.SCORE: torch.ones_like(weights[tiny_model.SCORE])} if value_head else {})

    monkeypatch.setattr(tiny_model, "init_weights", with_a_score_head)
    model = ["reward_model.enable=true", "reward_model.model.path=tiny"]
    one = train(tmp_path / "one", *FILTERED, *model, "trainer.total_training_steps=2")
    two = train(tmp_path / "two", *FILTERED, *model, "trainer.total_training_steps=2", "trainer.n_gpus_per_node=2")
    assert filter_counts(one, "kept") == [4, 4]
    assert one.metrics[0]["critic/score/mean"] != 0
    assert [step["critic/score/mean"] for step in one.metrics] == pytest.approx(
        [step["critic/score/mean"] for step in two.metrics], rel=1e-10
    )


def test_a_limit_of_generations_stops_the_run_with_its_counts(tmp_path, installed_fakes):
    (tmp_path / "reward.py").write_text("def compute_score(**arguments):\n    return 1.0\n")
    alike = [f"custom_reward_function.path={tmp_path}/reward.py", "algorithm.filter_groups.max_num_gen_batches=2"]
    with pytest.raises(FilteredGroupsError, match=r"of 6 groups 0 \(0%\) differ; all equal: 6 \(100%\), .* all 1: 6"):
        train(tmp_path, *FILTERED, *alike)


def test_data_that_never_fills_a_step_is_an_error(tmp_path, installed_fakes):
    (tmp_path / "reward.py").write_text("def compute_score(**arguments):\n    return 0.0\n")
    with pytest.raises(DataError, match=r"used up after 0 of 6 steps .*all 0: 60 \(100%\).*Nothing was trained"):
        train(tmp_path, *FILTERED, f"custom_reward_function.path={tmp_path}/reward.py")


def test_the_run_ends_well_when_the_data_does_and_goes_on_with_more(tmp_path, installed_fakes, capsys):
    kept = [*FILTERED, "trainer.total_training_steps=100", "trainer.resume_mode=auto", "trainer.save_freq=50"]
    write_prompts(tmp_path / "val.jsonl", 2)
    kept += [f"data.val_files={tmp_path}/val.jsonl", "trainer.test_freq=50", "trainer.val_before_train=false"]
    straight = train(tmp_path / "straight", *kept, "trainer.total_epochs=2")
    ended = train(tmp_path / "ended", *kept, "trainer.total_epochs=1")
    done = ended.metrics[-1]["step"]

    # One epoch has 15 prompts in whole generations, for three steps at most.
    assert 1 <= done < 3 < straight.metrics[-1]["step"] + 3
    assert f"note: the data was used up after {done} of 3 steps (trainer.total_epochs: 1)" in capsys.readouterr().out
    # Once as a step and once as the validation that ends the run; saved once.
    assert [step["step"] for step in ended.metrics] == [*range(1, done + 1), done]
    assert "val-core/count_letter/reward/mean@1" in ended.metrics[-1]
    assert [path.name for path in (tmp_path / "ended" / "run").glob("global_step_*")] == [f"global_step_{done}"]

    # A run that is over says so again and changes nothing.
    again = train(tmp_path / "ended", *kept, "trainer.total_epochs=1")
    assert again.metrics == ended.metrics
    resumed = train(tmp_path / "ended", *kept, "trainer.total_epochs=2")
    assert_equal_weights(resumed, straight)
    assert resumed.metrics[-1]["step"] == straight.metrics[-1]["step"] > done


@pytest.mark.parametrize("mode", ["trainer.v1.trainer_mode=sync", ASYNC])
def test_greedy_rows_come_with_the_others_and_change_none(mode, tmp_path, installed_fakes):
    frozen = ["actor_rollout_ref.actor.optim.lr=0", "algorithm.adv_estimator=grpo", *LONG, mode]
    dump = lambda name: f"trainer.rollout_data_dir={tmp_path / name}/rollouts"  # noqa: E731
    without = train(tmp_path / "without", *frozen, dump("without"))
    beside = train(tmp_path / "with", *frozen, "actor_rollout_ref.rollout.greedy_baseline=true", dump("with"))

    assert sorted(dumped(tmp_path / "with" / "rollouts")) == sorted(dumped(tmp_path / "without" / "rollouts"))
    assert all("rollout/greedy_reward/mean" in step for step in beside.metrics)
    assert all(step["rollout/greedy_missing"] == 0 for step in beside.metrics)
    assert_equal_weights(beside, without)


@pytest.mark.parametrize("mode", ["trainer.v1.trainer_mode=sync", ASYNC])
def test_remax_trains(mode, tmp_path, installed_fakes):
    run = train(tmp_path, *REMAX, mode, "trainer.n_gpus_per_node=2")
    assert len(run.metrics) == 6
    assert all(step["rollout/no_baseline"] == 0 for step in run.metrics)
    assert all(step["actor/grad_norm"] > 0 for step in run.metrics)
    frozen = train(tmp_path / "frozen", *REMAX, "actor_rollout_ref.actor.optim.lr=0", "trainer.total_training_steps=1")
    assert any(not torch.equal(run.policy[name], frozen.policy[name]) for name in frozen.policy)


def test_remax_with_dynamic_sampling_and_a_resume(tmp_path, installed_fakes):
    long = [*FILTERED, "algorithm.adv_estimator=remax", "trainer.total_training_steps=4", "trainer.resume_mode=auto"]
    straight = train(tmp_path / "straight", *long)
    train(tmp_path / "stopped", *long, "trainer.save_freq=2", "trainer.total_training_steps=2")
    resumed = train(tmp_path / "stopped", *long, "trainer.save_freq=2")
    assert filter_counts(straight, "kept") == [4] * 4
    assert_equal_weights(resumed, straight)


def test_failed_prompts_are_refilled_and_no_prompt_is_lost(tmp_path, installed_fakes, monkeypatch):
    misbehave(monkeypatch, raises=1)
    folder = tmp_path / "rollouts"
    run = train(
        tmp_path,
        "algorithm.adv_estimator=grpo",
        "actor_rollout_ref.rollout.n=1",
        "data.train_batch_size=4",
        "trainer.v1.sampler.sync_refill_failed_groups=true",
        "trainer.max_failed_rollout_fraction=0.5",
        "trainer.save_freq=2",
        f"trainer.rollout_data_dir={folder}",
    )
    assert run.metrics[0]["rollout/refilled_groups"] >= 1
    assert run.metrics[0]["rollout/failed_groups"] >= 1
    rows = [uid for uid, _ in dumped(folder)]
    assert len(set(rows)) == len(rows) == 8
    shutil.rmtree(folder)


def test_a_sampler_from_a_file_is_the_schedule(tmp_path, installed_fakes):
    (tmp_path / "mine.py").write_text(
        "from pathlib import Path\n\nfrom rl_core.trainer.ppo.sampler import SyncSampler\n\n\n"
        "class Loud(SyncSampler):\n"
        "    @classmethod\n"
        "    def from_workers(cls, config, loader, workers, *, path):\n"
        "        path = Path(path)\n"
        "        path.write_text('built')\n"
        "        return super().from_workers(config, loader, workers)\n"
    )
    mine = "trainer.v1.sampler.custom_sampler"
    train(
        tmp_path,
        *FILTERED,
        "trainer.total_training_steps=1",
        f"{mine}.path={tmp_path}/mine.py",
        f"{mine}.name=Loud",
        f"+trainer.v1.sampler.sampler_kwargs.path={tmp_path}/built",
    )
    assert (tmp_path / "built").read_text() == "built"
