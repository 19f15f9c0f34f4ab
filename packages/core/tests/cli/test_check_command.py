from __future__ import annotations

import subprocess
import sys
import time

import pytest
from rl_core.cli.check_command import main
from rl_core.plugins import BackendRecord, RolloutRecord

ENGINES = ["actor_rollout_ref.actor.strategy=one", "actor_rollout_ref.rollout.name=two"]
MODEL = "actor_rollout_ref.model.path=/m"
MINI = "actor_rollout_ref.actor.ppo_mini_batch_size"


@pytest.fixture
def engines(register):
    register(
        "rl-fakes",
        BackendRecord(name="one", target="m:t", summary="One."),
        RolloutRecord(name="two", target="m:t", summary="Two."),
    )


def test_a_sound_configuration_is_explained(engines, capsys):
    assert main([*ENGINES, MODEL, "data.train_batch_size=8", f"{MINI}=4", "--dataset-size", "20"]) == 0
    out = capsys.readouterr().out
    assert "8 prompts per step" in out
    assert "2 steps per epoch" in out
    assert "resharding 'generic'" in out
    assert "1 worker shared by actor, rollout, critic" in out
    assert out.rstrip().endswith("ok.")


def test_another_command_is_explained(engines, capsys):
    arguments = ["--command", "sft", "engine.strategy=one", "model.path=/m", "data.train_batch_size=8"]
    assert main([*arguments, "--dataset-size", "20"]) == 0
    out = capsys.readouterr().out
    assert "8 conversations per optimizer step" in out
    assert "2 steps per epoch" in out
    assert main([*arguments, "data.val_batch_size=2"]) == 2
    assert "there is no key data.val_batch_size." in capsys.readouterr().out


def test_everything_wrong_is_listed_and_the_exit_status_is_2(engines, capsys):
    arguments = [*ENGINES, MODEL, "data.train_batch_size=10", f"{MINI}=4", "trainer.nodes=2"]
    assert (
        main([*arguments, "trainer.n_gpus_per_node=2", "actor_rollout_ref.rollout.tensor_model_parallel_size=2"]) == 2
    )
    out = capsys.readouterr().out
    for text in ("10 is not divisible by 4", "there is no key trainer.nodes.", "'tensor_parallel'"):
        assert text in " ".join(out.split())
    assert "4 errors, the run would not start." in out, "the critic follows the actor's mini-batch"


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ((8, 8, 1, 16, 1), "8·1/16 = 0"),
        ((6, 6, 2, 4, 2), "12/4 = 3"),
        ((10, 4, 1, 1, 1), "10 is not divisible by 4"),
        ((8, 16, 1, 1, 1), "16 > 8"),
    ],
)
def test_sizes_that_cannot_work(sizes, text, engines, capsys):
    train, mini, n, workers, micro = sizes
    arguments = [
        f"data.train_batch_size={train}",
        f"{MINI}={mini}",
        f"actor_rollout_ref.rollout.n={n}",
        f"trainer.n_gpus_per_node={workers}",
        f"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={micro}",
    ]
    assert main([*ENGINES, MODEL, "algorithm.adv_estimator=grpo", *arguments]) == 2
    assert text in " ".join(capsys.readouterr().out.split())


def test_batch_sizes_are_explained_although_no_rollout_is_chosen(engines, capsys):
    assert main([ENGINES[0], MODEL]) == 2
    out = capsys.readouterr().out
    assert "rollout.name has no default" in out
    assert "1,024 prompts per step" in out


def test_rows_of_json_lines_are_counted(engines, capsys, tmp_path):
    file = tmp_path / "train.jsonl"
    file.write_text('{"prompt": "a"}\n' * 20 + "\n")
    sizes = ["data.train_batch_size=8", f"{MINI}=8", f"data.train_files={file}"]
    main([*ENGINES, MODEL, *sizes])
    assert "20 rows / 8 = 2 steps per epoch" in capsys.readouterr().out
    main([*ENGINES, MODEL, *sizes, "data.train_max_samples=16"])
    assert "16 rows / 8" in capsys.readouterr().out


def test_unreadable_overrides_are_reported(engines, capsys):
    assert main([*ENGINES, "trainer.resume_from_path=runs/step=40"]) == 2
    assert "'trainer.resume_from_path=\"runs/step=40\"'" in capsys.readouterr().out


def test_check_is_fast_and_loads_nothing_heavy():
    code = (
        "import sys; from rl_core.cli.main import main; main(['check', 'trainer.nnodes=2']);"
        "print([m for m in ('torch', 'ray', 'transformers', 'tensordict') if m in sys.modules])"
    )
    start = time.perf_counter()
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert time.perf_counter() - start < 5
    assert result.stdout.splitlines()[-1] == "[]"
