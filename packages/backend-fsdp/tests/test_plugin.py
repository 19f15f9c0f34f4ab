import re

import pytest
import rl_backend_fsdp.plugin
import rl_testing.plugin
from rl_backend_fsdp.config import FSDPConfig
from rl_backend_fsdp.engine import FSDPEngine
from rl_core import builtins
from rl_core.config import check_config, compose, compose_leniently
from rl_core.config.help_text import field_help
from rl_core.plugins import Registry, Selection

ACTOR = "actor_rollout_ref.actor"


@pytest.fixture(scope="module")
def registry():
    registry = Registry(Selection())
    registry.register_distribution("rl-core", "1.0", builtins)
    registry.register_distribution("rl-testing", "1.0", rl_testing.plugin)
    registry.register_distribution("rl-backend-fsdp", "1.0", rl_backend_fsdp.plugin)
    return registry


def tree(registry, *overrides):
    return compose(["actor_rollout_ref.rollout.name=fake", *overrides], registry=registry).tree


def test_the_record_leads_to_the_engine(registry):
    record = registry.record("backend", "fsdp2")
    assert (record.name, record.config_key) == ("fsdp", "fsdp_config")
    assert registry.load("backend", "fsdp") is FSDPEngine
    assert registry.load_config("backend", "fsdp") is FSDPConfig


def test_it_needs_no_gpu_but_a_process_for_each_worker(registry):
    capabilities = registry.record("backend", "fsdp").capabilities
    assert "cpu" in capabilities
    assert "shared_process" not in capabilities


def test_every_key_has_a_help_text():
    assert set(field_help(FSDPConfig)) == set(FSDPConfig.__dataclass_fields__)


def test_it_is_the_default_and_has_a_section_in_every_role(registry):
    config = tree(registry, "reward_model.enable=true", "reward_model.model.path=x")
    sections = (
        config.actor_rollout_ref.actor,
        config.actor_rollout_ref.ref,
        config.critic,
        config.reward_model,
    )
    assert all(isinstance(section.fsdp_config, FSDPConfig) for section in sections)


@pytest.mark.parametrize("name", ["fsdp", "fsdp2", "fsdp_config"])
def test_sections_may_be_written_by_the_backends_name(registry, name):
    assert tree(registry, f"critic.{name}.param_offload=true").critic.fsdp_config.param_offload


@pytest.mark.parametrize("value", ["fp8", "single"])
def test_unknown_number_formats_are_refused(registry, value):
    composition = compose_leniently(
        ["actor_rollout_ref.rollout.name=fake", f"{ACTOR}.fsdp_config.dtype={value}"], registry=registry
    )
    assert any(re.search(rf"dtype takes one of .*bf16.*'{value}'", str(error)) for error in composition.errors)


def inert_lines(registry, *overrides):
    config = compose(["actor_rollout_ref.rollout.name=fake", *overrides], registry=registry)
    return [note.text for note in check_config(config, 1, registry).notes if "no effect" in note.text]


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        (f"{ACTOR}.fsdp_config.wrap_policy.min_num_params=100", "by class"),
        (f"{ACTOR}.fsdp_config.seed=7", "trainer.seed"),
        ("actor_rollout_ref.model.use_liger=true", "does not read it"),
    ],
)
def test_keys_that_do_nothing_say_so(registry, override, reason):
    (line,) = inert_lines(registry, override)
    assert override.split("=")[0] in line
    assert reason in line


@pytest.mark.parametrize(
    "override",
    [
        f"{ACTOR}.fsdp_config.param_offload=true",
        f"{ACTOR}.fsdp_config.dtype=bf16",
        f"{ACTOR}.fsdp_config.fsdp_size=1",
        f"{ACTOR}.fsdp_config.offload_policy=true",
        f"{ACTOR}.fsdp_config.forward_prefetch=true",
        f"{ACTOR}.fsdp_config.full_determinism=true",
        f"{ACTOR}.fsdp_config.reshard_after_forward=false",
        f"{ACTOR}.fsdp_config.reshard_after_forward=2",
        f"{ACTOR}.ulysses_sequence_parallel_size=1",
        "trainer.balance_batch=false",
        f"{ACTOR}.grad_clip=0.5",
        f"{ACTOR}.optim.lr=1e-4",
        "actor_rollout_ref.model.use_remove_padding=false",
        "actor_rollout_ref.model.enable_gradient_checkpointing=false",
    ],
)
def test_keys_that_do_something_do_not(registry, override):
    assert inert_lines(registry, override) == []


def test_every_inert_key_is_a_field():
    """A reason for a key that is gone would never be printed."""
    for path in FSDPConfig.inert_keys:
        value = FSDPConfig()
        for name in path.split(".")[1:]:
            assert hasattr(value, name), path
            value = getattr(value, name)
