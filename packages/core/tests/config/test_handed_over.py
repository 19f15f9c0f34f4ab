from __future__ import annotations

from typing import ClassVar

import pytest
from rl_core.config.handed_over import OFFLINE_TABLE, TABLE, is_handed_over, unread_by_plugins
from rl_core.config.layout import PPO, SFT
from rl_core.config.schema import core_schema

ROLLOUT = "actor_rollout_ref.rollout"
ACTOR = "actor_rollout_ref.actor"


class Reads:
    common_keys: ClassVar[frozenset] = frozenset({"max_num_seqs", "engine_kwargs.*"})
    inert_keys: ClassVar[dict] = {"load_format": "weights always come from the trainer"}


class ReadsModel:
    common_keys: ClassVar[frozenset] = frozenset({"model.lora_rank", "optim.lr"})


class SaysNothing:
    pass


@pytest.mark.parametrize(("layout", "table"), [(PPO, TABLE), (SFT, OFFLINE_TABLE)], ids=["train", "sft"])
def test_tables_name_existing_keys(layout, table):
    schema = core_schema(layout)
    for entry in table:
        assert entry.chosen_by in schema.keys
        for key in entry.keys:
            path = f"{entry.section}.{key}".removesuffix(".*")
            assert path in schema.keys or path in schema.sections, path


def test_sections_are_covered():
    assert is_handed_over(f"{ROLLOUT}.engine_kwargs.any.thing")
    assert is_handed_over(f"{ACTOR}.optim.lr")
    assert not is_handed_over(f"{ROLLOUT}.n")


def test_what_a_plugin_does_not_read_is_said(composed):
    config = composed(
        f"{ROLLOUT}.max_num_seqs=8",
        f"{ROLLOUT}.enforce_eager=true",
        f"{ROLLOUT}.load_format=auto",
        f"+{ROLLOUT}.engine_kwargs.vllm.x=1",
        f"{ROLLOUT}.n=4",
    )
    assert dict(unread_by_plugins(config, {f"{ROLLOUT}.name": Reads})) == {
        f"{ROLLOUT}.enforce_eager": "rollout 'vllm' does not read it",
        f"{ROLLOUT}.load_format": "weights always come from the trainer",
    }


def test_keys_of_the_model_carry_its_name(composed):
    config = composed(
        "actor_rollout_ref.model.lora_rank=8", "actor_rollout_ref.model.use_liger=true", f"{ACTOR}.optim.lr=1"
    )
    assert dict(unread_by_plugins(config, {f"{ACTOR}.strategy": ReadsModel})) == {
        "actor_rollout_ref.model.use_liger": "backend 'fsdp' does not read it"
    }


def test_a_plugin_may_call_keys_of_its_own_inert(composed):
    config = composed("critic.fsdp_config.fsdp_size=2", "critic.fsdp_config.param_offload=true")
    assert dict(unread_by_plugins(config, {})) == {"critic.fsdp_config.fsdp_size": "one group only"}


def test_a_plugin_that_says_nothing_is_not_accused(composed):
    config = composed(f"{ROLLOUT}.enforce_eager=true")
    assert list(unread_by_plugins(config, {f"{ROLLOUT}.name": SaysNothing})) == []
