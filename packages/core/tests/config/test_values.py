from __future__ import annotations

import pytest
from omegaconf import OmegaConf
from rl_core.config.root import PPOTrainerConfig
from rl_core.config.schema import core_schema
from rl_core.config.values import assign, limit_errors, resolve, sort_values


@pytest.fixture
def raw():
    return OmegaConf.structured(PPOTrainerConfig)


def test_known_and_unknown_are_told_apart():
    found = sort_values({"data": {"seed": 1, "sead": 2, "apply_chat_template_kwargs": {"x": 3}}, "y": 4}, core_schema())
    assert found.values == {"data.seed": 1, "data.apply_chat_template_kwargs": {"x": 3}}
    assert found.unknown == {"data.sead": 2, "y": 4}


def test_a_key_has_nothing_below_it():
    found = sort_values({"data": {"train_files": {"x": 1}}, "trainer": {"nnodes": {"y": {"z": 2}}}}, core_schema())
    assert found.unknown == {"data.train_files.x": 1, "trainer.nnodes.y.z": 2}


def test_an_empty_section_of_a_file_means_nothing():
    found = sort_values({"critic": None}, core_schema())
    assert (found.values, found.unknown, found.errors) == ({}, {}, [])


def test_a_section_may_be_another_one(raw):
    found = sort_values({"critic": {"checkpoint": "${actor_rollout_ref.actor.checkpoint}"}}, core_schema())
    values = {"actor_rollout_ref.actor.checkpoint.async_save": True, **found.values}
    assert assign(raw, values, core_schema()) == []
    assert resolve(raw, values) == []
    assert raw.critic.checkpoint.async_save is True


def test_one_text_is_a_list_of_one_and_null_an_empty_section(raw):
    values = {"trainer.logger": "console", "critic.optim.override_optimizer_config": None}
    assert assign(raw, values, core_schema()) == []
    assert raw.trainer.logger == ["console"]
    assert raw.critic.optim.override_optimizer_config == {}


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("trainer.nnodes", None, "takes a whole number; found null."),
        ("trainer.nnodes", True, "takes a whole number; found True."),
        ("trainer.nnodes", 1.5, "takes a whole number; found 1.5."),
        ("data.seed", "x", "takes a whole number or null; found 'x'."),
        ("data.apply_chat_template_kwargs", 3, "takes a mapping; found 3."),
        ("trainer.logger", 3, "takes a list of texts; found 3."),
    ],
)
def test_ill_typed_values(path, value, text, raw):
    assert assign(raw, {path: value}, core_schema()) == [f"{path} {text}"]


def test_defaults_are_within_their_limits(raw):
    assert limit_errors(raw, core_schema()) == []
