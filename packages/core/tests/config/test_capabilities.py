from __future__ import annotations

import pytest
from rl_core.config.capabilities import NEEDS, capability_errors, capability_notes, pairing_note
from rl_core.config.schema import core_schema

ROLLOUT = "actor_rollout_ref.rollout"
ACTOR = "actor_rollout_ref.actor"


def errors(composed, registry, *overrides, workers=1):
    return list(capability_errors(composed(*overrides), workers, registry))


def test_needs_name_existing_keys():
    for need in NEEDS:
        assert need.key in core_schema().keys


def test_what_is_there_is_not_complained_about(composed, registry):
    config = ["actor_rollout_ref.model.lora_rank=32", f"{ROLLOUT}.tensor_model_parallel_size=2"]
    assert errors(composed, registry, *config, workers=2) == []


def test_missing_capability_names_key_engine_and_those_that_have_it(composed, registry):
    (error,) = errors(composed, registry, f"{ACTOR}.strategy=megatron", "actor_rollout_ref.model.lora_rank=32")
    assert error == (
        "actor_rollout_ref.model.lora_rank is 32, which needs 'lora'; backend 'megatron' does not have it "
        "(it has: tensor_parallel). Installed ones that have it: fsdp."
    )


def test_tensor_parallel_rollout(composed, registry):
    (error,) = errors(composed, registry, f"{ROLLOUT}.name=echo", f"{ROLLOUT}.tensor_model_parallel_size=2", workers=2)
    assert f"{ROLLOUT}.tensor_model_parallel_size is 2, which needs 'tensor_parallel'; rollout 'echo'" in error
    assert "sglang, vllm" in error


def test_cpu(composed, registry):
    (error,) = errors(composed, registry, "trainer.device=cpu")
    assert "rollout 'vllm' does not have it" in error
    assert errors(composed, registry, "trainer.device=cpu", f"{ROLLOUT}.name=echo") == []


def test_local_runtime_with_several_workers_is_for_engines_that_share_a_process(composed, registry):
    found = errors(composed, registry, "trainer.runtime=local", workers=2)
    assert len(found) == 2
    assert all("Use one worker" in error for error in found)
    assert errors(composed, registry, "trainer.runtime=local", workers=1) == []


def test_replicas_must_fit_the_workers(composed, registry):
    (error,) = errors(composed, registry, f"{ROLLOUT}.tensor_model_parallel_size=2", workers=3)
    assert "tensor_model_parallel_size (2) = 2 workers per replica, but the 3 workers" in error
    assert errors(composed, registry, f"{ROLLOUT}.tensor_model_parallel_size=2", f"{ROLLOUT}.nnodes=2", workers=3) == []


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ([f"{ROLLOUT}.name=sglang"], "free_cache_engine has no effect"),
        (
            [f"{ROLLOUT}.name=echo", f"{ROLLOUT}.free_cache_engine=false", "actor_rollout_ref.model.lora_rank=8"],
            "merged",
        ),
    ],
)
def test_things_done_in_another_way(overrides, text, composed):
    (note,) = capability_notes(composed(*overrides))
    assert text in note


def test_resharding_and_why(composed, registry):
    note, error = pairing_note(composed(), registry)
    assert error is None
    assert "from 'fsdp' to 'vllm' by resharding 'fast': made for this pair" in note
    note, _ = pairing_note(composed(f"{ROLLOUT}.name=echo"), registry)
    assert "resharding 'generic': works for any pair" in note
