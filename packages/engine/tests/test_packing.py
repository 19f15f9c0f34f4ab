import pytest
import torch
from rl_engine.packing import pack, pad
from rl_testing.models import tiny_model

# Sequences a (3 tokens, response of 1), b (2 tokens, response of 1), c (4 tokens, response of 2).
IDS = torch.tensor([10, 11, 12, 20, 21, 30, 31, 32, 33])
LENGTHS, RESPONSES = [3, 2, 4], [1, 1, 2]


def test_packed_positions_restart_and_nothing_is_padded():
    inputs = pack(IDS, LENGTHS, RESPONSES)
    assert inputs.input_ids.tolist() == [IDS.tolist()]
    assert inputs.position_ids.tolist() == [[0, 1, 2, 0, 1, 0, 1, 2, 3]]
    assert inputs.select.tolist() == [1, 3, 6, 7]
    assert inputs.tokens.tolist() == [12, 21, 32, 33]


def test_padded_rows_stand_at_the_left():
    inputs = pad(IDS, LENGTHS, RESPONSES)
    assert inputs.input_ids.tolist() == [[10, 11, 12, 0], [20, 21, 0, 0], [30, 31, 32, 33]]
    assert inputs.attention_mask.tolist() == [[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]]
    assert inputs.position_ids[0, :3].tolist() == [0, 1, 2]
    assert inputs.position_ids[2].tolist() == [0, 1, 2, 3]
    assert inputs.select.tolist() == [1, 4, 9, 10]
    assert inputs.tokens.tolist() == [12, 21, 32, 33]


@pytest.mark.parametrize("layout", [pack, pad])
def test_without_shift_outputs_are_read_at_the_token_itself(layout):
    inputs = layout(IDS, LENGTHS, RESPONSES, shift=0)
    assert inputs.input_ids.view(-1)[inputs.select].tolist() == inputs.tokens.tolist() == [12, 21, 32, 33]


@pytest.mark.parametrize("layout", [pack, pad])
def test_a_row_without_response_is_there_and_selects_nothing(layout):
    inputs = layout(IDS, LENGTHS, [0, 1, 0])
    assert inputs.input_ids.numel() >= len(IDS)
    assert inputs.tokens.tolist() == [21]


@pytest.mark.parametrize("layout", [pack, pad])
def test_no_rows_make_one_dummy_token(layout):
    inputs = layout(IDS[:0], [], [])
    assert inputs.input_ids.shape == inputs.position_ids.shape == (1, 1)
    assert len(inputs.select) == len(inputs.tokens) == 0
    assert inputs.tokens.dtype == torch.int64


def hidden(model, **arguments):
    with torch.no_grad():
        return model.model(**arguments).last_hidden_state


@pytest.fixture(scope="module")
def model():
    return tiny_model(vocab_size=64, hidden_size=32)


@pytest.fixture(scope="module")
def alone(model):
    """Each sequence in a pass of its own."""
    return torch.cat([hidden(model, input_ids=part[None], use_cache=False)[0] for part in IDS.split(LENGTHS)])


@pytest.mark.parametrize("training", [False, True])
def test_a_packed_pass_is_the_passes_of_its_sequences(model, alone, training):
    model.train(training)
    found = hidden(model, **pack(IDS, LENGTHS, RESPONSES).arguments())[0]
    torch.testing.assert_close(found, alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("trap", [{"use_cache": None}, {"attention_mask": torch.ones(1, len(IDS))}])
def test_what_arguments_protect_from(model, alone, trap):
    """The two calls that mix sequences silently. Once they do not, ``ModelInputs`` may be relaxed."""
    model.eval()
    found = hidden(model, **(pack(IDS, LENGTHS, RESPONSES).arguments() | trap))[0]
    torch.testing.assert_close(found[:3], alone[:3], rtol=1e-5, atol=1e-5)
    assert float((found - alone).abs().max()) > 0.1


def test_a_padded_pass_is_the_passes_of_its_sequences(model, alone):
    inputs = pad(IDS, LENGTHS, RESPONSES)
    found = hidden(model.eval(), **inputs.arguments())[inputs.attention_mask.bool()]
    torch.testing.assert_close(found, alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", [pack, pad])
def test_moving_keeps_everything(layout):
    inputs = layout(IDS, LENGTHS, RESPONSES)
    moved = inputs.to("meta")
    assert {moved.input_ids.device.type, moved.select.device.type, moved.tokens.device.type} == {"meta"}
    assert (moved.attention_mask is None) == (inputs.attention_mask is None)
