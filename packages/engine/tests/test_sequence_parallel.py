from itertools import chain

import pytest
import torch
from rl_core.errors import ConfigError
from rl_engine.packing import pack
from rl_engine.sequence_parallel import SequenceParallel, check_sequence_parallel


def parallels(size):
    """Members that never meet: cutting needs no communication."""
    return [SequenceParallel(None, rank, size) for rank in range(size)]


def ten_tokens():
    """Sequences of 4, 1 and 5 tokens; responses of 2, 0 and 3."""
    return pack(torch.arange(10, 20), (4, 1, 5), (2, 0, 3))


def test_ten_tokens_over_four_ranks():
    shares = [parallel.cut(ten_tokens()) for parallel in parallels(4)]
    ids = [share.inputs.input_ids[0].tolist() for share in shares]
    assert ids == [[10, 11, 12], [13, 14, 15], [16, 17, 18], [19, 0, 0]]
    positions = [share.inputs.position_ids[0].tolist() for share in shares]
    assert positions == [[0, 1, 2], [3, 0, 0], [1, 2, 3], [4, 0, 1]]
    for share in shares:
        assert share.inputs.lengths == (4, 1, 5, 2)
        assert share.positions.tolist() == [list(chain.from_iterable(positions))]
        assert share.counts == (2, 0, 3, 0)
        assert share.order.tolist() == [0, 1, 2, 3, 4]
    # Response tokens 12, 13 and 17, 18, 19 are predicted one place before them.
    assert [share.inputs.tokens.tolist() for share in shares] == [[12, 13], [], [17, 18, 19], []]
    assert [share.inputs.select.tolist() for share in shares] == [[1, 2], [], [0, 1, 2], []]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_what_divides_needs_no_padding(size):
    share = parallels(size)[-1].cut(ten_tokens())
    assert share.inputs.lengths == (4, 1, 5)
    assert share.inputs.input_ids.shape == share.inputs.position_ids.shape == (1, 10 // size)


def test_an_empty_pass_still_has_a_token_for_every_rank():
    empty = pack(torch.empty(0), (), ())
    for parallel in parallels(4):
        share = parallel.cut(empty)
        assert share.inputs.input_ids.shape == (1, 1)
        assert share.counts == (0, 0, 0, 0)


def test_outputs_that_are_read_in_another_order_come_back_in_theirs():
    inputs = ten_tokens()
    inputs = type(inputs)(
        inputs.input_ids, inputs.position_ids, None, torch.tensor([9, 0, 5, 1]), torch.tensor([4, 3, 2, 1]), (10,)
    )
    shares = [parallel.cut(inputs) for parallel in parallels(2)]
    joined = torch.cat([share.inputs.tokens for share in shares])
    assert joined.tolist() == [3, 1, 4, 2]
    assert joined[shares[0].order].tolist() == [4, 3, 2, 1]


def test_workers_that_cannot_be_grouped_and_padded_rows_are_refused():
    check_sequence_parallel(2, 4, pads=False)
    check_sequence_parallel(1, 3, pads=True)
    for size, workers, pads, reason in ((3, 4, False, "4 workers"), (0, 4, False, "is 0"), (2, 4, True, "padding")):
        with pytest.raises(ConfigError, match=reason):
            check_sequence_parallel(size, workers, pads=pads)
