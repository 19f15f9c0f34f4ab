from __future__ import annotations

import dataclasses
import pickle

import pytest
from rl_core.errors import PluginError
from rl_core.plugins import (
    KINDS,
    RECORD_CLASSES,
    AdvantageRecord,
    BackendRecord,
    PolicyLossRecord,
    Record,
    ReshardingRecord,
    RewardModelRecord,
    kind_label,
)
from rl_core.plugins import RewardRecord as Reward

GOOD = {"name": "acme", "target": "acme.engine:Engine", "summary": "What it does."}


def test_the_kinds():
    assert (
        *("backend", "rollout", "resharding", "reward", "reward_manager", "reward_model", "advantage", "policy_loss"),
        *("loss_aggregation", "kl_estimator", "agent_loop", "tool", "tool_parser", "dataset", "sampler"),
        *("optimizer", "tracker", "dispatch_mode", "recipe", "command"),
    ) == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_every_record_is_frozen_slotted_picklable_and_keyword_only(kind):
    record = RECORD_CLASSES[kind](**GOOD)
    assert record.kind == kind
    assert record.hook_api == "1.0"
    assert pickle.loads(pickle.dumps(record)) == record
    assert not hasattr(record, "__dict__")
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.name = "other"
    with pytest.raises(TypeError):
        RECORD_CLASSES[kind]("acme", "acme.engine:Engine", "What it does.")


@pytest.mark.parametrize("target", ["a:b", "acme.engine:Engine", "_a.b_2:C.d"])
def test_good_targets(target):
    assert Reward(**{**GOOD, "target": target}).target == target


@pytest.mark.parametrize(
    "target", ["acme.engine", "acme.engine.Engine", "acme:", ":Engine", "acme engine:E", "a:b:c", "a..b:c", "1a:b", ""]
)
@pytest.mark.parametrize("field", ["target", "config", "tokenizer"])
def test_bad_targets_are_named_with_what_they_should_look_like(field, target):
    with pytest.raises(PluginError, match=rf"BackendRecord 'acme': {field} is .*'package.module:attribute'"):
        BackendRecord(**{**GOOD, field: target})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "has space"}, "name is 'has space'"),
        ({"name": ""}, "name is ''"),
        ({"name": 3}, "name must be a str; it is int 3"),
        ({"aliases": ("a,b",)}, "name is 'a,b'"),
        ({"aliases": "kl"}, "aliases must be a tuple; it is str 'kl'"),
        ({"requires": "torch"}, "requires must be a tuple"),
        ({"requires": ("acme>>1",)}, "'acme>>1', which is no requirement"),
        ({"requires": ("a | b @ https://example.org/b.whl",)}, "an address cannot be compared"),
        ({"capabilities": {"lora"}}, "capabilities must be a frozenset"),
        ({"capabilities": frozenset({1})}, r"capabilities must hold strings; it holds \[1\]"),
        ({"hook_api": "1"}, "hook_api is '1'; it must look like 'major.minor'"),
        ({"summary": "  "}, "summary is empty"),
        ({"config": "a:B", "config_key": "b", "mount": ("actr",)}, r"mount names \['actr'\]; the mount points are"),
        ({"config": "a:B", "config_key": "b-c", "mount": ("actor",)}, "config_key is 'b-c'"),
        ({"config_key": "b", "mount": ("actor",)}, "mount needs config, the dataclass"),
        ({"config": "a:B", "config_key": "b"}, "config_key needs mount"),
        ({"name": "a-b", "config": "a:B", "mount": ("actor",)}, "config_key is 'a-b'"),
    ],
)
def test_bad_fields(changes, message):
    with pytest.raises(PluginError, match=message):
        Reward(**{**GOOD, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prepare": "acme.loss"}, "prepare is 'acme.loss'; it must look like 'package.module:attribute'"),
        ({"aggregation": "token mean"}, "aggregation is 'token mean'; it must look like the name of a loss aggreg"),
    ],
)
def test_bad_fields_of_a_policy_loss(changes, message):
    with pytest.raises(PluginError, match=f"PolicyLossRecord 'acme': {message}"):
        PolicyLossRecord(**GOOD, **changes)


def test_a_mounted_dataclass_has_the_records_name_unless_said():
    mounted = {**GOOD, "config": "a:B", "mount": ("actor", "ref")}
    assert Reward(**mounted).config_key == "acme"
    assert Reward(**mounted, config_key="other").config_key == "other"
    assert Reward(**GOOD, config="a:B").config_key is None


def test_names_of_data_sources_are_names():
    assert Reward(**{**GOOD, "name": "openai/gsm8k", "aliases": ("math-500_v1.2+x",)}).name == "openai/gsm8k"


def test_advantage_needs():
    assert AdvantageRecord(**GOOD, needs=frozenset({"values", "group"})).needs == {"values", "group"}
    with pytest.raises(PluginError, match=r"needs names \['critic'\]; an estimator may need"):
        AdvantageRecord(**GOOD, needs=frozenset({"critic"}))


def test_resharding_key():
    record = ReshardingRecord(**GOOD)
    assert (record.backend, record.rollout, record.transport) == ("*", "*", "generic")
    with pytest.raises(PluginError, match="backend is 'a b'"):
        ReshardingRecord(**GOOD, backend="a b")
    with pytest.raises(PluginError, match=r"transport is '\*'"):
        ReshardingRecord(**GOOD, transport="*")


def test_the_base_record_has_no_kind_of_its_own():
    assert Record.kind not in KINDS


def test_kind_labels():
    assert [kind_label("policy_loss"), kind_label("policy_loss", plural=True)] == ["policy loss", "policy losses"]
    assert kind_label("kl_estimator", plural=True) == "KL estimators"


def test_what_a_reward_model_gives():
    record = RewardModelRecord(**GOOD)
    assert (record.trained, record.gives) == (False, "outcome")
    assert RewardModelRecord(**GOOD, trained=True, gives="process").trained
    with pytest.raises(PluginError, match=r"gives is 'tokens'; a reward model gives one of \['outcome', 'process'\]"):
        RewardModelRecord(**GOOD, gives="tokens")
    with pytest.raises(PluginError, match="trained must be a bool"):
        RewardModelRecord(**GOOD, trained="yes")


def test_a_reward_claims_prefixes_beside_its_names():
    record = Reward(**GOOD, aliases=("other",), prefixes=("acme/", "aime"))
    assert record.claims == ("acme", "other", "acme/*", "aime*")
    assert AdvantageRecord(**GOOD, aliases=("other",)).claims == ("acme", "other")
    with pytest.raises(PluginError, match=r"prefixes is ''; it must look like letters"):
        Reward(**GOOD, prefixes=("",))
    with pytest.raises(PluginError, match="prefixes must be a tuple"):
        Reward(**GOOD, prefixes="aime")
