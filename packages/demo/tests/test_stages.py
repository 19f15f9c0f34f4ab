import shlex
import subprocess
from pathlib import Path

import pytest
from rl_core.config import SFT, compose_request, parse_cli
from rl_core.config.check import check_config
from rl_core.config.compose import compose_command
from rl_core.plugins import get_registry
from rl_demo.files import DataFiles
from rl_demo.stages import commands_text, grpo_arguments, sft_arguments, sft_model


@pytest.fixture
def data(tmp_path):
    return DataFiles(tmp_path / "sft.jsonl", tmp_path / "rl.jsonl", tmp_path / "held out.jsonl")


def test_both_stages_are_whole_configurations_without_keys_that_do_nothing(data, tmp_path):
    sft = sft_arguments(tmp_path / "model", data, tmp_path / "sft", seed=2, steps=10)
    grpo = grpo_arguments(sft_model(tmp_path / "sft"), data, tmp_path / "grpo", seed=2, steps=5, learning_rate=0.0)
    first = compose_command(parse_cli(sft, SFT), SFT)
    second = compose_request(parse_cli(grpo))
    for composed in (first, second):
        report = check_config(composed, None, get_registry())
        report.raise_if_failed()
        assert report.start_lines() == []
    assert first.tree.trainer.seed == second.tree.trainer.seed == 2
    assert second.tree.actor_rollout_ref.actor.optim.lr == 0
    assert second.tree.actor_rollout_ref.model.path == str(tmp_path / "sft" / "huggingface")
    assert first.tree.trainer.export_dir == second.tree.actor_rollout_ref.model.path


@pytest.mark.parametrize("name", ["a b", "a,b", "a (2)", "a=b", "it's", "[x]", "{x}", 'q"q', "ä"])
def test_folders_of_any_name_reach_the_configuration(name):
    folder = Path("/tmp") / name
    data = DataFiles(folder / "sft", folder / "rl", folder / "held_out")
    grpo = grpo_arguments(sft_model(folder / "run"), data, folder / "grpo", seed=1, steps=1, learning_rate=0.1)
    sft = sft_arguments(folder / "model", data, folder / "run", seed=1, steps=1)
    second, first = compose_request(parse_cli(grpo)).tree, compose_command(parse_cli(sft, SFT), SFT).tree
    assert second.data.train_files == f"/tmp/{name}/rl"
    assert second.trainer.default_local_dir == f"/tmp/{name}/grpo"
    assert first.trainer.export_dir == second.actor_rollout_ref.model.path == f"/tmp/{name}/run/huggingface"


def test_the_script_holds_the_arguments_as_a_shell_reads_them(data, tmp_path):
    grpo = grpo_arguments(tmp_path / "m", data, tmp_path / "run", seed=1, steps=5, learning_rate=1e-3)
    script = commands_text(["optim.betas=[0.9,0.98]"], grpo, export=Path("/tmp/it's"))
    shown = subprocess.run(
        ["sh", "-c", 'rl() { printf "%s\\n" "$@"; }\n' + script], capture_output=True, text=True, check=True
    )
    assert shown.stdout.splitlines() == ["sft", "optim.betas=[0.9,0.98]", "train", *grpo]


def test_the_script_says_how_to_start_from_the_other_model(data, tmp_path):
    grpo = grpo_arguments(tmp_path / "m", data, tmp_path / "run", seed=1, steps=5, learning_rate=1e-3)
    (line,) = (line for line in commands_text([], grpo, export=tmp_path / "a b").splitlines() if "a b" in line)
    (argument,) = shlex.split(line.removeprefix("#"))
    assert compose_request(parse_cli([*grpo, argument])).tree.actor_rollout_ref.model.path == str(tmp_path / "a b")
