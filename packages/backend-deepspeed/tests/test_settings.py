"""Which DeepSpeed configuration a section becomes, and what of a user's own is refused."""

import json

import pytest
from rl_backend_deepspeed.config import DeepSpeedConfig
from rl_backend_deepspeed.settings import check_options, deepspeed_settings, user_settings
from rl_core.errors import ConfigError


def test_a_users_mapping_wins_over_the_file_and_both_are_merged(tmp_path):
    file = tmp_path / "mine.json"
    mine = {"zero_optimization": {"round_robin_gradients": True, "ignore_unused_parameters": False}, "dump_state": True}
    file.write_text(json.dumps(mine))
    options = DeepSpeedConfig(
        config_file=str(file), ds_config={"zero_optimization": {"ignore_unused_parameters": True}}
    )
    found = deepspeed_settings(options, bf16=False)
    assert found["dump_state"] is True
    zero = found["zero_optimization"]
    assert (zero["round_robin_gradients"], zero["ignore_unused_parameters"], zero["stage"]) == (True, True, 2)


@pytest.mark.parametrize(
    ("key", "value", "ours"),
    [
        ("train_batch_size", 8, "data.train_batch_size"),
        ("train_micro_batch_size_per_gpu", 1, "ppo_micro_batch_size_per_gpu"),
        ("gradient_accumulation_steps", 2, "ppo_mini_batch_size"),
        ("gradient_clipping", 1.0, "grad_clip"),
        ("optimizer", {"type": "AdamW"}, "optim.optimizer"),
        ("scheduler", {"type": "WarmupLR"}, "optim.lr_scheduler_type"),
        ("bf16", {"enabled": False}, "deepspeed_config.dtype"),
        ("fp16", {"enabled": True}, "deepspeed_config.dtype"),
        ("zero_optimization", {"stage": 2}, "deepspeed_config.zero_stage"),
        ("zero_optimization", {"offload_param": {"device": "cpu"}}, "deepspeed_config.param_offload"),
    ],
)
@pytest.mark.parametrize("from_file", [False, True])
def test_keys_that_ours_decide_are_refused_by_name(tmp_path, key, value, ours, from_file):
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({key: value}))
    options = DeepSpeedConfig(config_file=str(file)) if from_file else DeepSpeedConfig(ds_config={key: value})
    with pytest.raises(ConfigError, match=rf"sets {key}.*set instead: .*{ours}"):
        user_settings(options)


@pytest.mark.parametrize(
    ("mine", "words"),
    [
        ({"zero_optimisation": {}}, "sets zero_optimisation, which this engine does not pass on"),
        ({"curriculum_learning": {"enabled": True}}, "sets curriculum_learning, which"),
        ({"zero_optimization": 2}, "has 2 as zero_optimization"),
    ],
)
def test_keys_that_would_do_nothing_or_something_unknown_are_refused(mine, words):
    with pytest.raises(ConfigError, match=words):
        user_settings(DeepSpeedConfig(ds_config=mine))


@pytest.mark.parametrize("text", ["{", "[]", None])
def test_a_file_that_is_none_is_refused_with_its_name(tmp_path, text):
    file = tmp_path / "mine.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=r"deepspeed_config\.config_file is .*mine\.json"):
        user_settings(DeepSpeedConfig(config_file=str(file)))


@pytest.mark.parametrize(
    ("options", "bf16", "words"),
    [
        (DeepSpeedConfig(zero_stage=0), False, "zero_stage is 0 for a role that is trained"),
        (DeepSpeedConfig(zero_stage=4), False, "zero_stage is 4"),
        (DeepSpeedConfig(zero_stage=1), True, "zero_stage is 1 with bfloat16"),
        (DeepSpeedConfig(model_dtype="bf16"), True, "model_dtype is 'bf16'"),
    ],
)
def test_what_deepspeed_does_not_have_is_refused(options, bf16, words):
    with pytest.raises(ConfigError, match=words):
        check_options(options, is_trained=True, bf16=bf16)


def test_a_frozen_role_may_have_any_stage_and_format():
    for stage in range(4):
        check_options(DeepSpeedConfig(zero_stage=stage, model_dtype="bf16"), is_trained=False, bf16=True)


@pytest.mark.parametrize(("stage", "operation"), [(1, "sum"), (2, "sum"), (3, "mean")])
def test_gradients_are_sums_where_deepspeed_can_and_steps_are_ours(stage, operation):
    found = deepspeed_settings(DeepSpeedConfig(zero_stage=stage), bf16=False)
    assert found["gradient_allreduce_op"] == operation
    assert found["managed_gradient_accumulation"] is False
    assert found["gradient_clipping"] == 0.0
