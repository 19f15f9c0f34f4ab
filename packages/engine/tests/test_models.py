import json
from types import SimpleNamespace

import pytest
import torch
from huggingface_hub import constants
from rl_core.errors import ConfigError
from rl_engine import models
from rl_engine.models import (
    dtype_by_name,
    load_causal_lm,
    load_config,
    load_processor,
    load_tokenizer,
    resolve_folder,
)
from rl_testing.models import save_tiny_model, tiny_model
from safetensors.torch import load_file, save_file


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("qwen2"), hidden_size=32)


def section(path, **fields):
    return SimpleNamespace(path=None if path is None else str(path), **fields)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """An empty Hub cache, and no network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def put_in_cache(hub, name):
    repository = hub / f"models--{name.replace('/', '--')}"
    snapshot = save_tiny_model(repository / "snapshots" / ("c" * 40), hidden_size=32)
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("c" * 40)
    return snapshot


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("fp32", torch.float32),
        ("bfloat16", torch.bfloat16),
        ("torch.float16", torch.float16),
        ("float64", torch.float64),
    ],
)
def test_number_formats(name, dtype):
    assert dtype_by_name(name) is dtype


def test_an_unknown_number_format_lists_the_others():
    with pytest.raises(ConfigError, match=r"'fp8'; choose one of .*bfloat16"):
        dtype_by_name("fp8")


def test_a_folder_is_itself(folder):
    assert resolve_folder(str(folder)) == folder


def test_a_name_is_found_in_the_cache(hub):
    snapshot = put_in_cache(hub, "org/tiny")
    assert resolve_folder("org/tiny") == snapshot
    assert load_causal_lm(section("org/tiny"), torch.float32).config.hidden_size == 32
    assert len(load_tokenizer("org/tiny")) == 260


def test_what_is_nowhere_is_one_error_that_says_where_it_was_looked_for(hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        load_causal_lm(section("org/absent"), torch.float32)
    text = str(caught.value)
    assert "'org/absent'" in text
    assert str(tmp_path / "org/absent") in text
    assert str(hub) in text
    assert "Give the path of a folder with config.json and safetensors files" in text


@pytest.mark.parametrize("path", ["/no/such/folder", "not a repository name !"])
def test_a_path_that_is_no_name_is_the_same_error(hub, path):
    with pytest.raises(ConfigError, match="There is no such folder"):
        resolve_folder(path)


def test_no_path_at_all():
    with pytest.raises(ConfigError, match="no model was given"):
        load_config(section(None))


def test_weights_come_as_they_are_in_the_asked_format(folder):
    stored = load_file(folder / "model.safetensors")
    for dtype in (torch.float32, torch.bfloat16):
        model = load_causal_lm(section(folder), dtype)
        assert not model.training
        assert all(torch.equal(model.state_dict()[name], tensor.to(dtype)) for name, tensor in stored.items())


def test_torchs_kernels_are_the_default_and_overrides_are_honoured(folder):
    assert load_causal_lm(section(folder), torch.float32).config._attn_implementation == "sdpa"
    changed = section(folder, override_config={"attn_implementation": "eager", "rms_norm_eps": 0.5})
    config = load_causal_lm(changed, torch.float32).config
    assert (config._attn_implementation, config.rms_norm_eps) == ("eager", 0.5)


def test_an_override_of_nothing_is_refused(folder):
    with pytest.raises(ConfigError, match=r"override_config.rms_epsilon .* its fields are .*rms_norm_eps"):
        load_config(section(folder, override_config={"rms_epsilon": 0.5}))


def test_another_configuration_folder(folder, tmp_path):
    other = tmp_path / "other"
    tiny_model(hidden_size=32, rms_norm_eps=0.25).config.save_pretrained(other)
    assert load_config(section(folder, hf_config_path=str(other))).rms_norm_eps == 0.25


def test_dropout_is_off_unless_it_is_asked_for(tmp_path):
    path = save_tiny_model(tmp_path, model_type="gpt2", resid_pdrop=0.1, attn_pdrop=0.2)
    config = load_config(section(path, override_config={"attn_pdrop": 0.3}))
    assert (config.resid_pdrop, config.attn_pdrop) == (0.0, 0.3)
    assert load_config(section(path), for_training=False).resid_pdrop == 0.1


def test_missing_weights_are_not_made_up(folder, tmp_path):
    for name in ("config.json", "generation_config.json"):
        (tmp_path / name).write_text((folder / name).read_text())
    weights = load_file(folder / "model.safetensors")
    weights.pop("model.layers.1.mlp.up_proj.weight")
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"1 weights are missing \(model.layers.1.mlp.up_proj.weight\)"):
        load_causal_lm(section(tmp_path), torch.float32)


def test_weights_of_another_shape_are_refused(folder):
    with pytest.raises(ConfigError, match=r"6 have another shape \(\S*down_proj.weight: \(32, 64\), \(32, 80\)"):
        load_causal_lm(section(folder, override_config={"intermediate_size": 80}), torch.float32)


def test_a_folder_without_weights(folder, tmp_path):
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(ConfigError, match="cannot be loaded"):
        load_causal_lm(section(tmp_path), torch.float32)


def test_code_that_comes_with_a_model_does_not_run(folder, tmp_path):
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "model_type": "homemade",
        "auto_map": {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "code.py").write_text("raise SystemExit('ran')\n")
    with pytest.raises(ConfigError, match=r"Set model.trust_remote_code=true if you trust"):
        load_config(section(tmp_path))


def test_an_external_module_is_imported_first(folder, tmp_path, monkeypatch):
    (tmp_path / "registers_models.py").write_text("WAS_RUN = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    load_config(section(folder, external_lib="registers_models"))
    import registers_models

    assert registers_models.WAS_RUN


def test_loading_leaves_transformers_as_it_was(folder):
    settings = models.transformers_logging
    before = settings.is_progress_bar_enabled(), settings.get_verbosity()
    load_causal_lm(section(folder), torch.float32)
    assert (settings.is_progress_bar_enabled(), settings.get_verbosity()) == before


def test_tokenizer_and_its_template(folder, tmp_path):
    messages = [{"role": "user", "content": "hi"}]
    assert load_tokenizer(str(folder)).apply_chat_template(messages, tokenize=False).startswith("<|im_start|>user")
    changed = load_tokenizer(str(folder), chat_template="{{ messages[0]['content'] }}!")
    assert changed.apply_chat_template(messages, tokenize=False) == "hi!"
    with pytest.raises(ConfigError, match="holds no tokenizer that can be loaded"):
        load_tokenizer(str(tmp_path))


def test_a_text_model_has_no_processor(folder):
    assert load_processor(str(folder)) is None


@pytest.mark.parametrize("model_type", ["qwen2", "gpt2"])
def test_a_made_up_empty_tokenizer_is_no_tokenizer(model_type, tmp_path):
    (tmp_path / "config.json").write_text(f'{{"model_type": "{model_type}"}}')
    with pytest.raises(ConfigError, match="holds no tokenizer"):
        load_tokenizer(str(tmp_path))
