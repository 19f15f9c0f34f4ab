from dataclasses import replace

import pytest
import torch
from rl_core.errors import ConfigError
from rl_engine.packing import pack, pad
from rl_engine.token_model import PolicyModel
from rl_testing.models import tiny_model
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

VOCAB = 61
IDS = torch.tensor([10, 11, 12, 20, 21, 30, 31, 32, 33])
LENGTHS, RESPONSES = [3, 2, 4], [1, 1, 2]


@pytest.fixture
def policy():
    return PolicyModel(tiny_model(vocab_size=VOCAB, hidden_size=32), temperature=0.7, chunk_size=2)


class RowsThroughHead(TorchDispatchMode):
    """The most rows that any tensor of the vocabulary's width has, weights aside."""

    rows = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        is_weight = isinstance(out, torch.Tensor) and out.numel() == 32 * VOCAB
        if isinstance(out, torch.Tensor) and out.dim() and out.shape[-1] == VOCAB and not is_weight:
            self.rows = max(self.rows, out.numel() // VOCAB)
        return out


@pytest.mark.parametrize("layout", [pack, pad])
def test_outputs_are_those_of_the_plain_model(policy, layout):
    found = policy(layout(IDS, LENGTHS, RESPONSES), {"log_probs", "entropy", "sum_pi_squared"})
    expected = []
    for ids, response in zip(IDS.split(LENGTHS), RESPONSES, strict=True):
        logits = policy.causal_lm(input_ids=ids[None], use_cache=False).logits[0, -response - 1 : -1]
        table = torch.log_softmax(logits / 0.7, -1)
        expected += table.gather(-1, ids[-response:, None])[:, 0].tolist()
    torch.testing.assert_close(found["log_probs"], torch.tensor(expected), rtol=1e-5, atol=1e-5)
    assert found["entropy"].shape == found["sum_pi_squared"].shape == (4,)


@pytest.mark.parametrize("extra", [1, 3])
def test_b35_padding_changes_no_log_prob_and_the_first_ratio_is_one(policy, extra):
    """Two layouts, and rows padded further than they need be, as a sequence-parallel group does."""
    wanted = {"log_probs", "entropy", "sum_pi_squared"}
    plain = pad(IDS, LENGTHS, RESPONSES)
    width = plain.input_ids.shape[1]
    places = plain.select // width * (width + extra) + plain.select % width
    grown = {name: functional.pad(getattr(plain, name), (0, extra)) for name in ("input_ids", "position_ids")}
    further = replace(plain, **grown, attention_mask=functional.pad(plain.attention_mask, (0, extra)), select=places)
    expected = policy(pack(IDS, LENGTHS, RESPONSES), wanted)
    for inputs in (plain, further):
        found = policy(inputs, wanted)
        for name in wanted:
            torch.testing.assert_close(found[name], expected[name], rtol=1e-5, atol=1e-5)
    again = policy(further, wanted)["log_probs"]
    assert (again - policy(further, wanted)["log_probs"]).exp().tolist() == [1.0] * len(again)


def test_only_what_was_asked_comes_back(policy):
    assert set(policy(pack(IDS, LENGTHS, RESPONSES), {"log_probs"})) == {"log_probs"}


@pytest.mark.parametrize("layout", [pack, pad])
def test_prompts_never_meet_the_output_layer(policy, layout):
    """4 response tokens in chunks of 2, whatever stands before them."""
    with RowsThroughHead() as seen:
        policy(layout(IDS, LENGTHS, RESPONSES), {"log_probs"})["log_probs"].sum().backward()
    assert seen.rows == 2


def test_names_are_those_of_the_checkpoint():
    for tied in (False, True):
        model = tiny_model(vocab_size=VOCAB, hidden_size=32, tie_word_embeddings=tied)
        named = dict(PolicyModel(model).named_weights())
        assert set(named) == set(model.state_dict())
        assert (named["lm_head.weight"] is named["model.embed_tokens.weight"]) == tied


def test_layers_in_order_and_never_one_within_another(policy):
    assert policy.layers() == list(policy.causal_lm.model.layers)
    mamba = PolicyModel(tiny_model("mamba", vocab_size=VOCAB, hidden_size=32))
    assert mamba.layers() == list(mamba.causal_lm.backbone.layers)


def test_the_model_is_asked_what_it_does_to_logits():
    policy = PolicyModel(tiny_model("cohere", vocab_size=VOCAB, hidden_size=32))
    inputs = pack(IDS, LENGTHS, RESPONSES)
    with torch.no_grad():
        plain = policy.causal_lm(input_ids=IDS[None, :3], use_cache=False).logits[0, 1]
        expected = float(torch.log_softmax(plain, -1)[12])
        assert abs(float(policy(inputs, {"log_probs"})["log_probs"][0]) - expected) > 0.05
        assert policy(inputs, {"transform"}) == {}
        assert float(policy(inputs, {"log_probs"})["log_probs"][0]) == pytest.approx(expected, abs=1e-5)


def test_unusual_output_layers_are_refused():
    model = tiny_model(vocab_size=VOCAB, hidden_size=32)
    model.set_output_embeddings(nn.Sequential(model.get_output_embeddings()))
    with pytest.raises(ConfigError, match="output layer of Qwen2ForCausalLM is a Sequential"):
        PolicyModel(model)


def test_greedy_sampling_has_no_log_probs():
    with pytest.raises(ConfigError, match="temperature is 0"):
        PolicyModel(tiny_model(vocab_size=VOCAB, hidden_size=32), temperature=0)
