from __future__ import annotations

import pytest
from rl_core.config.overrides import cli_help, parse_cli, parse_overrides
from rl_core.errors import ConfigError


def read(text, search=()):
    parsed, errors = parse_overrides([text], search)
    return (parsed[0] if parsed else None), "\n".join(map(str, errors))


def test_unquoted_equals_sign_shows_the_quoted_form():
    parsed, error = read("trainer.resume_from_path=runs/step=40/actor")
    assert parsed is None
    assert "'trainer.resume_from_path=\"runs/step=40/actor\"'" in error
    shown = error.rpartition("Hydra: ")[2].strip().strip("'")
    again, no_error = read(shown)
    assert no_error == ""
    assert again is not None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('trainer.resume_from_path="runs/step=40/actor"', "runs/step=40/actor"),
        ("trainer.resume_from_path=runs/my run/ck", "runs/my run/ck"),
        ("trainer.experiment_name=a\\=b", "a=b"),
        ('trainer.experiment_name="it\'s"', "it's"),
    ],
)
def test_values_with_special_characters(text, value, composed):
    key = text.partition("=")[0].partition(".")[2]
    mode = ["trainer.resume_mode=resume_path"] if key == "resume_from_path" else []
    assert getattr(composed(text, *mode).tree.trainer, key) == value


def test_home_sign_shows_the_quoted_form():
    _, error = read("data.train_files=~/data/train.parquet")
    assert "'data.train_files=\"~/data/train.parquet\"'" in error


def test_a_comma_is_not_taken_for_two_runs():
    _, error = read("data.train_files=a.parquet,b.parquet")
    assert "brackets" in error
    assert "'data.train_files=\"a.parquet,b.parquet\"'" in error


def test_characters_escaped_in_vain_lose_their_backslash_in_the_quoted_form():
    _, error = read("trainer.experiment_name=it\\'s")
    assert """experiment_name="it'"'"'s"'""" in error


def test_word_without_value_shows_an_example():
    _, error = read("trainer.nnodes")
    assert "KEY=VALUE" in error


def test_unreadable_secret_is_not_shown():
    _, error = read("ray_kwargs.ray_init.runtime_env.env_vars.TOKEN=abc=def")
    assert "TOKEN" in error
    assert "abc" not in error


def test_all_unreadable_overrides_are_reported():
    _, errors = parse_overrides(["a=b=c", "x=1", "d=(e"])
    assert len(errors) == 2


def test_changes_and_additions_are_forced_alike():
    for text in ("a.b=1", "+a.b=1", "++a.b=1"):
        parsed, _ = read(text)
        assert (parsed.hydra_text, parsed.key) == ("++a.b=1", "a.b")


def test_config_groups_and_hydras_own_keys_are_left_to_hydra(tmp_path):
    (tmp_path / "experiment").mkdir()
    for text in ("+experiment=small", "hydra.verbose=true", "~a.b", "optim@actor.optim=adam"):
        parsed, error = read(text, [tmp_path])
        assert error == ""
        assert (parsed.hydra_text, parsed.key) == (text, None)


def test_options_and_overrides_mix():
    request = parse_cli(["a=1", "--config-name", "job", "b=2", "-cp", "conf", "--cfg", "job", "--resolve", "c=3"])
    assert request.overrides == ("a=1", "b=2", "c=3")
    assert (request.config_name, request.config_path, request.cfg, request.resolve) == ("job", "conf", "job", True)


def test_defaults_of_a_plain_command_line():
    request = parse_cli([])
    assert (request.overrides, request.config_name, request.config_path, request.cfg) == ((), "ppo_trainer", None, None)
    assert not request.show_help


def test_help_is_asked_for():
    assert parse_cli(["-h"]).show_help
    for option in ("--config-name", "--cfg", "KEY=VALUE", "--resolve"):
        assert option in cli_help()


@pytest.mark.parametrize(
    ("argv", "text"), [(["--multirun", "a=1,2"], "one command"), (["--frobnicate"], "unrecognized"), (["--cfg"], "cfg")]
)
def test_options_without_meaning_are_refused(argv, text):
    with pytest.raises(ConfigError, match=text):
        parse_cli(argv)
