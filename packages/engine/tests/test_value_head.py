from functools import partial
from types import SimpleNamespace

import pytest
import torch
from rl_core.contracts.engine import EngineRole
from rl_core.errors import ConfigError
from rl_engine.loading import load_token_model
from rl_engine.packing import pack, pad
from rl_engine.value_head import load_value_model, read_before_padding
from rl_testing.models import PAD_ID, save_tiny_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

IDS = torch.tensor([10, 11, 12, 20, 21])


def section(path):
    return SimpleNamespace(path=str(path))


def values(model, shift=0):
    with torch.no_grad():
        return model(pack(IDS, [3, 2], [2, 1], shift=shift), {"values"})["values"]


def test_a_language_model_gets_a_head_of_zeros(tmp_path):
    model = load_value_model(section(save_tiny_model(tmp_path, hidden_size=32)), torch.float32)
    stored = load_file(tmp_path / "model.safetensors")
    named = dict(model.named_weights())
    assert set(named) == set(stored) - {"lm_head.weight"} | {"score.weight"}
    assert named["score.weight"].shape == (1, 32)
    assert all(torch.equal(named[name], stored[name]) for name in set(named) & set(stored))
    assert values(model).tolist() == [0, 0, 0]


@pytest.mark.parametrize("model_type", ["qwen2", "gpt2"])
def test_a_token_classifier_is_read_with_its_head(tmp_path, model_type):
    path = save_tiny_model(tmp_path, model_type=model_type, head="token_classification", hidden_size=32)
    plain = AutoModelForTokenClassification.from_pretrained(path)
    if model_type == "gpt2":
        # GPT-2 calls the head of a token classifier by another name.
        weights = load_file(path / "model.safetensors")
        weights = {name.replace("classifier.", "score."): tensor for name, tensor in weights.items()}
        save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    with torch.no_grad():
        expected = torch.cat([plain(input_ids=part[None]).logits[0, 1 - len(part) :, 0] for part in IDS.split([3, 2])])
    found = values(load_value_model(section(path), torch.float32, require_head=True))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_sequence_classifier_scores_the_last_token(tmp_path):
    path = save_tiny_model(tmp_path, head="sequence_classification", hidden_size=32)
    plain = AutoModelForSequenceClassification.from_pretrained(path)
    with torch.no_grad():
        expected = [float(plain(input_ids=part[None]).logits) for part in IDS.split([3, 2])]
    found = values(load_value_model(section(path), torch.float32, require_head=True))
    assert [float(found[1]), float(found[2])] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("model_type", ["llama", "qwen2"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("pad_token_id", [21, None])
def test_a_reward_model_scores_as_transformers_does(tmp_path, model_type, padded, pad_token_id):
    """Sequences that end in the padding token, hold it inside, or are nothing else."""
    path = save_tiny_model(
        tmp_path, model_type=model_type, head="sequence_classification", hidden_size=32, pad_token_id=pad_token_id
    )
    plain = AutoModelForSequenceClassification.from_pretrained(path)
    texts = [[10, 11, 12], [20, 21], [10, 21, 11, 21, 21], [21, 21, 21], [11, 10, 9]]
    with torch.no_grad():
        expected = [float(plain(input_ids=torch.tensor([text])).logits) for text in texts]
        model = load_token_model(EngineRole.REWARD, section(path), torch.float32, temperature=1.0, is_trained=False)
        ids, sizes = torch.tensor([token for text in texts for token in text]), [len(text) for text in texts]
        inputs = (pad if padded else pack)(ids, sizes, [1] * len(texts), shift=0)
        found = model(inputs, {"values"})["values"]
    assert found.tolist() == pytest.approx(expected, abs=1e-5)
    assert len({round(score, 4) for score in expected}) == len(texts)


@pytest.mark.parametrize(("with_tokenizer", "expected"), [(True, PAD_ID), (False, None)])
def test_one_that_is_trained_takes_the_padding_of_its_tokenizer(tmp_path, with_tokenizer, expected):
    path = save_tiny_model(tmp_path, pad_token_id=None, with_tokenizer=with_tokenizer)
    make = partial(load_token_model, EngineRole.REWARD, section(path), torch.float32, temperature=1.0)
    assert make(is_trained=True).pad_token_id == expected
    save_tiny_model(tmp_path, head="sequence_classification", pad_token_id=None)
    assert make(is_trained=False).pad_token_id is None


def test_places_are_read_before_padding_and_never_in_another_sequence():
    inputs = pack(torch.tensor([7, 0, 0, 0, 0, 8, 0]), [3, 2, 2], [3, 2, 1], shift=0)
    assert read_before_padding(inputs, 0).select.tolist() == [0, 0, 0, 3, 3, 5]


def test_values_stand_before_the_token(tmp_path):
    model = load_value_model(section(save_tiny_model(tmp_path, head="sequence_classification")), torch.float32)
    with torch.no_grad():
        both = model(pack(IDS, [3, 2], [2, 1], shift=1), {"values"})["values"], values(model)
    assert float(both[0][1]) == pytest.approx(float(both[1][0]), abs=1e-6)


def test_values_are_float32_in_half_precision(tmp_path):
    model = load_value_model(section(save_tiny_model(tmp_path, head="sequence_classification")), torch.bfloat16)
    assert values(model).dtype == torch.float32


def test_a_scorer_that_nobody_trains_needs_a_head(tmp_path):
    with pytest.raises(ConfigError, match=r"no score head \(score.weight\).* it holds a Qwen2ForCausalLM"):
        load_value_model(section(save_tiny_model(tmp_path)), torch.float32, require_head=True)


def test_several_labels_are_refused(tmp_path):
    path = save_tiny_model(tmp_path, head="sequence_classification", num_labels=3)
    with pytest.raises(ConfigError, match=r"shape \(3, 64\); .* one output, shape \(1, 64\)"):
        load_value_model(section(path), torch.float32)


def test_the_gradient_reaches_head_and_backbone(tmp_path):
    model = load_value_model(section(save_tiny_model(tmp_path, head="sequence_classification")), torch.float32)
    model(pack(IDS, [3, 2], [2, 1]), {"values"})["values"].sum().backward()
    assert all(float(parameter.grad.abs().sum()) > 0 for parameter in model.parameters())
