from __future__ import annotations

import pytest
from rl_core.config.check import ENGINES, check_config
from rl_core.config.role_needs import ROLE_NEEDS
from rl_core.config.schema import core_schema

REF, CRITIC, MODEL = "actor_rollout_ref.ref", "critic", "reward_model"
ON = {
    REF: "actor_rollout_ref.actor.use_kl_loss=true",
    CRITIC: "algorithm.adv_estimator=gae",
    MODEL: "reward_model.enable=true",
}
OFF = {CRITIC: "algorithm.adv_estimator=grpo"}


@pytest.fixture
def found(composed, registry):
    def found(*overrides):
        report = check_config(composed(*overrides), None, registry)
        return [error.text for error in report.errors if error.topic == ENGINES]

    return found


def test_needs_name_existing_keys():
    keys = core_schema().keys
    for role in ROLE_NEEDS:
        assert role.strategy in keys
        assert all(need.key in keys for need in role.needs)


@pytest.mark.parametrize("section", [REF, CRITIC, MODEL])
def test_shared_sequences_are_asked_of_the_roles_own_backend(found, section):
    key = f"{section}.ulysses_sequence_parallel_size"
    asked = [ON[section], f"{key}=2", "trainer.n_gpus_per_node=2"]
    start = f"{key} is 2, which needs 'sequence_parallel'; backend 'megatron' does not have it"
    assert [text for text in found(*asked) if key in text] == []
    off = [OFF.get(section, f"{key}=2"), *asked[1:]]
    assert [text for text in found(*off, f"{section}.strategy=megatron") if key in text] == []
    (text,) = [text for text in found(*asked, f"{section}.strategy=megatron") if key in text]
    assert text.startswith(start)


def test_a_reference_that_follows_the_actor_is_not_named_twice(found):
    asked = ["actor_rollout_ref.actor.strategy=megatron", "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2"]
    texts = found(ON[REF], *asked, "trainer.n_gpus_per_node=2")
    (text,) = [text for text in texts if "sequence_parallel" in text and "needs" in text]
    assert text.startswith("actor_rollout_ref.actor.")


def test_adapters_of_the_critic(found):
    key = "critic.model.lora_rank"
    assert [text for text in found(ON[CRITIC], f"{key}=8") if key in text] == []
    (text,) = [text for text in found(ON[CRITIC], f"{key}=8", "critic.strategy=megatron") if key in text]
    assert "needs 'lora'; backend 'megatron'" in text


def test_an_adapter_to_start_from_needs_a_rank(composed, registry):
    def texts(*overrides):
        report = check_config(composed("actor_rollout_ref.model.lora_adapter_path=a", *overrides), None, registry)
        return [error.text for error in report.errors if "lora_adapter_path" in error.text]

    (text,) = texts()
    assert text.startswith("actor_rollout_ref.model.lora_adapter_path is a, but actor_rollout_ref.model.lora_rank is 0")
    assert texts("actor_rollout_ref.model.lora_rank=8") == []
