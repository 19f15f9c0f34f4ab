import pytest
import torch
from rl_core.contracts.engine import ROWS_TOGETHER_KEY
from rl_core.errors import ConfigError, DataError
from rl_core.single_controller.base.collective import SoloCollective
from rl_dataproto import DataProto, jagged_from_rows
from rl_engine.micro_batches import cut_rows, cut_units, micro_batches, rows_in_order

# Bug B12: lengths and values of its rows.
LENGTHS = [7, 2, 5, 3, 6, 1]


class BusierPeer(SoloCollective):
    """A group in which another rank has ``passes`` of its own."""

    def __init__(self, passes):
        self.passes = passes

    def all_gather_object(self, obj, timeout_s=None):
        return [obj, (self.passes, False)]


def make_batch(lengths=LENGTHS, prompt=1):
    """Row i holds the token i + 1 only, after a prompt of ``prompt`` tokens 0."""
    responses = [torch.full((length,), row + 1) for row, length in enumerate(lengths)]
    return DataProto.from_dict(
        tensors={
            "input_ids": jagged_from_rows([torch.cat([torch.zeros(prompt, dtype=torch.int64), r]) for r in responses]),
            "responses": jagged_from_rows(responses),
            "response_mask": jagged_from_rows([torch.arange(len(r)) % 2 == 0 for r in responses]),
        },
        non_tensors={"uid": [f"row {row}" for row in range(len(lengths))]},
    )


def passes(batch, *, size=None, max_tokens=None, padded=False, shift=1, collective=None):
    return list(
        micro_batches(
            batch,
            size=size,
            max_tokens=max_tokens,
            padded=padded,
            shift=shift,
            collective=collective or SoloCollective(),
            device="cpu",
        )
    )


def test_by_size_rows_stay_in_order():
    assert cut_rows(LENGTHS, 4, None) == [[0, 1, 2, 3], [4, 5]]
    assert cut_rows(LENGTHS, 4, 1) == [[0, 1, 2, 3], [4, 5]]


def test_without_limits_there_is_one_pass():
    assert cut_rows(LENGTHS, None, None) == [[0, 1, 2, 3, 4, 5]]
    assert cut_rows([], 2, None) == cut_rows([], None, 5) == []


def test_a_token_budget_is_kept_and_used_well():
    cuts = cut_rows(LENGTHS, None, 8)
    assert sorted(row for cut in cuts for row in cut) == list(range(6))
    assert [sum(LENGTHS[row] for row in cut) for cut in cuts] == [8, 8, 8]


def test_a_row_beyond_the_budget_has_a_pass_to_itself():
    assert [0] in cut_rows([9, 3, 3], None, 8)


def test_a_padded_budget_counts_the_padding():
    cuts = cut_rows(LENGTHS, None, 8, padded=True)
    assert sorted(row for cut in cuts for row in cut) == list(range(6))
    assert all(max(LENGTHS[row] for row in cut) * len(cut) <= 8 for cut in cuts)
    # 7 | 6 | 5 | 3 and 2 | 1 would fit as 3x2; 3+2 and 1: two of width 3 and one of width 1.
    assert len(cuts) == 5


@pytest.mark.parametrize("limits", [(0, None), (None, 0), (-1, None)])
def test_limits_below_one_are_refused(limits):
    with pytest.raises(ConfigError, match="at least one row and one token"):
        cut_rows(LENGTHS, *limits)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("limits", [{"size": 1}, {"size": 4}, {"max_tokens": 9}, {}])
def test_outputs_come_back_in_order_and_none_from_padding(padded, limits):
    """B12, with one more pass on another rank: row sums of the responses, in input order."""
    batch = make_batch()
    found = []
    for micro in passes(batch, padded=padded, collective=BusierPeer(7), **limits):
        found.append((micro, micro.inputs.tokens.float()))
    assert len(found) == 7
    column = rows_in_order(found, len(batch), torch.float32)
    assert [float(row.sum()) for row in column.unbind()] == [7, 4, 15, 12, 30, 6]
    assert [len(row) for row in column.unbind()] == LENGTHS


def test_empty_passes_come_last_and_only_the_very_last_is_last():
    found = passes(make_batch(), size=4, collective=BusierPeer(4))
    assert [micro.is_empty for micro in found] == [False, False, True, True]
    assert [micro.is_last for micro in found] == [False, False, False, True]
    assert found[-1].padded(torch.zeros(0)).shape == (0, 0)


def test_a_rank_without_rows_makes_the_passes_of_the_others():
    batch = make_batch().select_idxs([])
    found = passes(batch, size=2, collective=BusierPeer(2))
    assert [micro.is_empty for micro in found] == [True, True]
    assert [len(row) for row in rows_in_order([], 0, torch.float32).unbind()] == []


def test_a_micro_batch_has_every_column_of_its_rows():
    micro = passes(make_batch(), max_tokens=9)[0]
    assert list(micro.rows.non_tensor_batch["uid"]) == [f"row {row}" for row in micro.indices]
    assert micro.response_lengths == [LENGTHS[row] for row in micro.indices]


def test_padded_outputs_and_mask_stand_together():
    (micro,) = passes(make_batch([3, 1]))
    values = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    padded = micro.padded(values)
    assert padded.tolist() == [[1, 2, 3], [4, 0, 0]]
    assert micro.response_mask().tolist() == [[True, False, True], [True, False, False]]
    padded[:, 0].sum().backward()
    assert values.grad.tolist() == [1, 0, 0, 1]


def test_the_input_is_not_written_to():
    batch = make_batch()
    before = batch.batch["input_ids"].values().clone()
    passes(batch, size=2)
    assert torch.equal(batch.batch["input_ids"].values(), before)
    assert set(batch.batch.keys()) == {"input_ids", "responses", "response_mask"}


def test_a_response_needs_a_token_before_it():
    with pytest.raises(DataError, match="row 0 has 7 input_ids and 7 responses"):
        passes(make_batch(prompt=0))


def test_missing_columns_are_named():
    batch = DataProto.from_dict(tensors={"input_ids": jagged_from_rows([torch.ones(2)])})
    with pytest.raises(DataError, match=r"lacks the columns \['responses'\]"):
        passes(batch)


def test_rows_that_belong_together_stay_in_one_pass():
    assert cut_units(LENGTHS, 1, None, together=2) == [[0, 1], [2, 3], [4, 5]]
    assert cut_units(LENGTHS, 5, None, together=2) == [[0, 1, 2, 3], [4, 5]]
    assert sorted(cut_units(LENGTHS, None, 16, together=2)) == [[0, 1, 4, 5], [2, 3]]
    # Padded, a pair costs twice its longer row: 14, 10 and 12 tokens.
    assert cut_units(LENGTHS, None, 24, padded=True, together=2) == [[0, 1], [2, 3, 4, 5]]
    assert cut_units(LENGTHS, None, 4, padded=True, together=2) == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(DataError, match=r"6 rows, of which every 4 belong together"):
        cut_units(LENGTHS, None, None, together=4)
    with pytest.raises(ConfigError, match="at least one row"):
        cut_units(LENGTHS, 0, None, together=2)


def test_a_batch_says_which_rows_belong_together():
    batch = make_batch()
    batch.meta_info[ROWS_TOGETHER_KEY] = 3
    assert [micro.indices for micro in passes(batch, size=1)] == [[0, 1, 2], [3, 4, 5]]
