"""The configuration of ``rl sft`` goes through the same machinery as that of ``rl train``."""

from __future__ import annotations

import pickle

import pytest
from rl_core.config import SFT, cfg_text, compose_sft, config_to_yaml, parse_cli
from rl_core.config.aliases import OFFLINE_ALIASES, OFFLINE_KEEP_NEWEST
from rl_core.config.compose import compose_command, compose_leniently
from rl_core.config.schema import core_schema
from rl_core.errors import ConfigError
from rl_core.plugins.hints import DEFAULT_BACKEND


@pytest.fixture
def composed(registry):
    return lambda *overrides, **options: compose_sft(overrides, registry=registry, **options)


@pytest.fixture
def problem(registry):
    def problem(*overrides):
        composition = compose_leniently(overrides, registry=registry, layout=SFT)
        (error,) = composition.errors
        return str(error)

    return problem


def test_the_plugins_section_stands_beside_its_name(composed):
    tree = composed("engine.fsdp_config.param_offload=true", "engine.strategy=fsdp2").tree
    assert tree.engine.strategy == DEFAULT_BACKEND
    assert tree.engine.fsdp_config.param_offload is True
    assert composed("engine.strategy=megatron", "engine.megatron.tensor_model_parallel_size=2").tree.engine.megatron
    assert not hasattr(composed("engine.strategy=plain").tree.engine, "fsdp_config")


def test_derived_values(composed):
    data = composed("trainer.seed=7").tree.data
    assert (data.seed, data.use_dynamic_bsz) == (7, True)
    assert composed("data.micro_batch_size_per_gpu=2").tree.data.use_dynamic_bsz is False
    assert composed("data.seed=3").tree.data.seed == 3
    trainer = composed("trainer.default_local_dir=/run").tree.trainer
    assert trainer.export_dir == "/run/huggingface"
    assert composed("trainer.export_dir=null").tree.trainer.export_dir is None


def test_the_tree_is_sealed_and_survives_pickling(composed):
    config = composed("data.train_batch_size=4", "optim.lr=1e-3")
    with pytest.raises(ConfigError, match="read-only"):
        config.tree.data.train_batch_size = 5
    copy = pickle.loads(pickle.dumps(config))
    assert copy.tree == config.tree
    assert copy.given == {"data.train_batch_size", "optim.lr"}
    assert copy.schema.layout is SFT


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("data.trian_files=x", "there is no key data.trian_files.\n  Closest: data.train_files"),
        ("engine.fsdp_config.parm_offload=true", "Closest: engine.fsdp_config.param_offload"),
        ("engine.megatron.x=1", "which this configuration does not select.\n  Select it with engine.strategy=megatron"),
        ("engine.strategy=absent", "engine.strategy: "),
        ("actor_rollout_ref.model.path=m", "`rl sft` has one model: model.path"),
        ("critic.strategy=fsdp", "there is no key critic.strategy"),
        ("trainer.val_only=true", "there is no key trainer.val_only"),
        ("trainer.total_steps=3", "Give trainer.total_training_steps"),
        ("data.pad_mode=no_padding", "packed or padded by the engine"),
        ("data.truncation=middle", "data.truncation takes one of error, left, right; found 'middle'"),
        ("data.max_length=1", "data.max_length must be at least 2; found 1"),
        ("recipe=higher", "there is no key recipe"),
    ],
)
def test_wrong_keys_and_values_are_explained(problem, override, text):
    assert text in problem(override)


def test_other_spellings(composed):
    schema = core_schema(SFT)
    assert {new for _, new in OFFLINE_ALIASES} | set(OFFLINE_KEEP_NEWEST) <= set(schema.keys)
    assert not {old for old, _ in OFFLINE_ALIASES} & {*schema.keys, *schema.sections}
    config = composed("optim.clip_grad=0.5", "trainer.remove_previous_ckpt_in_save=true", "model.lora.rank=8")
    assert config.tree.engine.grad_clip == 0.5
    assert config.tree.trainer.max_ckpt_to_keep == 1
    assert config.tree.model.lora_rank == 8
    assert "optim.clip_grad is read as engine.grad_clip." in config.notices


def test_files_and_the_base_name(composed, tmp_path, registry):
    (tmp_path / "mine.yaml").write_text("defaults: [sft_trainer, _self_]\ndata: {max_length: 99}\n")
    assert composed(config_name="mine", config_path=tmp_path).tree.data.max_length == 99
    request = parse_cli(["data.max_length=98"], SFT)
    assert request.config_name == "sft_trainer"
    assert compose_command(request, SFT, registry).tree.data.max_length == 98
    # What is printed can be read again, and then nothing counts as given.
    (tmp_path / "dumped.yaml").write_text(config_to_yaml(composed(), resolve=False))
    assert composed(config_name="dumped", config_path=tmp_path).given == frozenset()


def test_what_cfg_job_prints(registry):
    text = cfg_text(parse_cli(["optim.lr=0.5", "--cfg", "job", "--package", "optim"], SFT), registry, SFT)
    assert "lr: 0.5\n" in text


def test_an_unknown_option_names_the_command():
    with pytest.raises(ConfigError, match="usage: rl sft"):
        parse_cli(["--nope"], SFT)
