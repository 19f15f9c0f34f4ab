from __future__ import annotations

import pytest
import yaml
from rl_core.cli.config_command import main
from rl_core.errors import ConfigError
from rl_core.plugins import BackendRecord, RolloutRecord


@pytest.fixture
def engines(register):
    register(
        "rl-fakes",
        BackendRecord(name="one", target="m:t", summary="One."),
        RolloutRecord(name="two", target="m:t", summary="Two."),
    )


ENGINES = ["actor_rollout_ref.actor.strategy=one", "actor_rollout_ref.rollout.name=two"]


def test_show_prints_what_a_run_would_use(engines, capsys):
    assert main(["show", *ENGINES, "data.train_batch_size=256", "-p", "data"]) == 0
    out, err = capsys.readouterr()
    assert yaml.safe_load(out)["train_batch_size"] == 256
    assert err == ""


def test_show_fills_in_on_request_only(engines, capsys):
    arguments = ["show", *ENGINES, "--package", "actor_rollout_ref.rollout.prompt_length"]
    main(arguments)
    assert capsys.readouterr().out == "None\n"
    main([*arguments, "--resolve"])
    assert capsys.readouterr().out == "512\n"


def test_show_of_another_command(engines, capsys):
    arguments = ["show", "--command", "sft"]
    assert main([*arguments, "engine.strategy=one", "data.max_length=64", "-p", "data"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["max_length"] == 64
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert list(yaml.safe_load(out)) == ["data", "model", "engine", "optim", "checkpoint", "trainer", "ray_kwargs"]
    assert err.startswith("# engine.strategy: ")
    assert main([*arguments, "--help-key", "data.truncation"]) == 0
    assert "One of: error, left, right\n" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="--command is 'stf'"):
        main(["show", "--command", "stf"])


def test_show_works_before_any_engine_is_chosen(capsys):
    assert main(["show"]) == 0
    out, err = capsys.readouterr()
    assert yaml.safe_load(out)["actor_rollout_ref"]["rollout"]["name"] == "???"
    assert "actor_rollout_ref.rollout.name has no default" in err


def test_show_refuses_what_a_run_would_refuse(engines):
    with pytest.raises(ConfigError, match=r"Closest: trainer\.nnodes"):
        main(["show", *ENGINES, "trainer.nodes=2"])


def test_show_never_prints_secrets(engines, capsys):
    main(["show", *ENGINES, "+ray_kwargs.ray_init.runtime_env.env_vars.T=t0ken"])
    out, err = capsys.readouterr()
    assert "t0ken" not in out + err


def test_help_for_a_key(capsys):
    assert main(["show", "--help-key", "data.truncation"]) == 0
    assert "One of: error, left, right, middle" in capsys.readouterr().out


def test_generate_writes_and_compares(tmp_path, capsys):
    file = tmp_path / "all.yaml"
    assert main(["generate", "--output", str(file), "--check"]) == 1
    assert "rl config generate --command train --write" in capsys.readouterr().err
    assert main(["generate", "--output", str(file), "--write"]) == 0
    assert main(["generate", "--output", str(file), "--check"]) == 0
    assert main(["generate", "--output", str(file)]) == 0
    assert capsys.readouterr().out == file.read_text()


def test_generate_into_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no folder"):
        main(["generate", "--write", "--output", str(tmp_path / "no" / "f.yaml")])


def test_a_subcommand_is_required(capsys):
    with pytest.raises(SystemExit):
        main([])
    assert "show|generate" in capsys.readouterr().err
