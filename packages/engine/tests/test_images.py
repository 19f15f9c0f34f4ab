import numpy as np
import pytest
import torch
from rl_core.errors import ConfigError, DataError
from rl_dataproto import DataProto, jagged_from_rows
from rl_engine.images import COLUMN, has_images, image_arguments, images_of
from rl_engine.micro_batches import micro_batches
from rl_testing.models import tiny_model


class Together:
    """A collective in which other ranks answer with ``others``."""

    def __init__(self, *others):
        self.others = others

    def all_gather_object(self, mine):
        return [mine, *self.others]


def batch(*inputs):
    rows = [torch.arange(1, 4) + number for number in range(len(inputs))]
    column = np.empty(len(inputs), dtype=object)
    column[:] = inputs
    tensors = {"input_ids": jagged_from_rows(rows), "responses": jagged_from_rows([row[1:] for row in rows])}
    return DataProto.from_dict(tensors, {COLUMN: column})


def passes(rows, *others, padded=True):
    return list(
        micro_batches(rows, size=2, max_tokens=None, padded=padded, shift=1, collective=Together(*others), device="cpu")
    )


PIXELS = torch.arange(6.0).view(3, 2)
MIXED = ({"pixel_values": PIXELS[:1]}, {}, None, {"pixel_values": PIXELS[1:], "token_type_ids": torch.ones(1, 9)})


def test_a_pass_has_the_images_of_its_rows_in_order():
    assert torch.equal(images_of(batch(*MIXED))["pixel_values"], PIXELS)
    first, second = (micro.inputs.images for micro in passes(batch(*MIXED)))
    assert first["pixel_values"].tolist() == [[0, 1]]
    assert second["pixel_values"].tolist() == [[2, 3], [4, 5]]
    assert second.keys() == {"pixel_values"}
    assert [micro.inputs.images for micro in passes(batch(None, {}, {"pixel_values": None}))] == [{}, {}]


def test_rows_that_do_not_fit_behind_each_other_are_refused():
    with pytest.raises(DataError, match=r"'multi_modal_inputs' of the batch cannot be put together: .*'pixel_values'"):
        images_of(batch({"pixel_values": torch.zeros(1, 2)}, {"pixel_values": torch.zeros(1, 3)}))


def test_a_packed_pass_and_several_workers_refuse_images_on_every_rank():
    text = batch({"mm_token_type_ids": torch.zeros(1, 3)}, None)  # what a processor says of text alone
    assert has_images(batch(*MIXED))
    assert not has_images(text)
    assert not has_images(text.select(non_tensor_batch_keys=[]))
    with pytest.raises(ConfigError, match=r"rows are packed.*use_remove_padding=False"):
        passes(batch(*MIXED), padded=False)
    with pytest.raises(ConfigError, match="2 workers share the model"):
        passes(text, (1, True))
    assert len(passes(text, (3, False))) == 3


def test_a_model_without_vision_takes_no_images():
    model = tiny_model("qwen2", vocab_size=33, hidden_size=16, num_heads=2, num_key_value_heads=1)
    ids = torch.zeros(1, 2, dtype=torch.int64)
    assert image_arguments(model.base_model, {}, ids) == {}
    with pytest.raises(ConfigError, match="has pixel_values, which model type 'qwen2' does not take"):
        image_arguments(model.base_model, {"pixel_values": PIXELS}, ids)
