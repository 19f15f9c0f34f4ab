import pytest
import rl_backend_deepspeed.plugin
import rl_testing.plugin
from rl_backend_deepspeed.config import DeepSpeedConfig
from rl_backend_deepspeed.engine import DeepSpeedEngine
from rl_core import builtins
from rl_core.config import check_config, compose
from rl_core.config.help_text import field_help
from rl_core.plugins import Registry, Selection

ACTOR = "actor_rollout_ref.actor"
ALL = [f"{role}.strategy=deepspeed" for role in (ACTOR, "actor_rollout_ref.ref", "critic", "reward_model")]


@pytest.fixture(scope="module")
def registry():
    registry = Registry(Selection())
    registry.register_distribution("rl-core", "1.0", builtins)
    registry.register_distribution("rl-testing", "1.0", rl_testing.plugin)
    registry.register_distribution("rl-backend-deepspeed", "1.0", rl_backend_deepspeed.plugin)
    return registry


def tree(registry, *overrides):
    return compose(["actor_rollout_ref.rollout.name=fake", *ALL, *overrides], registry=registry).tree


def test_the_record_leads_to_the_engine(registry):
    assert registry.record("backend", "deepspeed").config_key == "deepspeed_config"
    assert registry.load("backend", "deepspeed") is DeepSpeedEngine
    assert registry.load_config("backend", "deepspeed") is DeepSpeedConfig


def test_it_needs_no_gpu_but_a_process_for_each_worker(registry):
    capabilities = registry.record("backend", "deepspeed").capabilities
    assert {"cpu", "lora"} <= capabilities
    assert not {"shared_process", "sequence_parallel"} & capabilities


def test_every_key_has_a_help_text():
    assert set(field_help(DeepSpeedConfig)) == set(DeepSpeedConfig.__dataclass_fields__)


def test_it_has_a_section_in_every_role(registry):
    config = tree(registry, "reward_model.enable=true", "reward_model.model.path=x", "critic.deepspeed.zero_stage=3")
    sections = (config.actor_rollout_ref.actor, config.actor_rollout_ref.ref, config.critic, config.reward_model)
    assert all(isinstance(section.deepspeed_config, DeepSpeedConfig) for section in sections)
    assert config.critic.deepspeed_config.zero_stage == 3


def inert_lines(registry, *overrides):
    config = compose(["actor_rollout_ref.rollout.name=fake", ALL[0], *overrides], registry=registry)
    return [note.text for note in check_config(config, 1, registry).notes if "no effect" in note.text]


def test_keys_that_do_nothing_say_so(registry):
    (line,) = inert_lines(registry, f"{ACTOR}.entropy_checkpointing=true")
    assert "computed again" in line


@pytest.mark.parametrize(
    "override",
    [
        *(
            f"{ACTOR}.deepspeed_config.{key}"
            for key in ("zero_stage=3", "param_offload=true", "reduce_bucket_size=1000")
        ),
        f"{ACTOR}.deepspeed_config.ds_config.dump_state=true",
        f"{ACTOR}.grad_clip=0.5",
        f"{ACTOR}.optim.lr=1e-4",
    ],
)
def test_keys_that_do_something_do_not(registry, override):
    assert inert_lines(registry, f"++{override}" if "ds_config" in override else override) == []
