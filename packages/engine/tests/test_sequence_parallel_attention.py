import pytest
import torch
from rl_engine.packing import pack
from rl_engine.sequence_parallel import SequenceParallel, computing
from rl_engine.sequence_parallel_attention import WholePack, distributed_attention, implementation_within, whole_mask


class OneMember(SequenceParallel):
    """A group of one, whose exchanges leave everything where it is."""

    def __init__(self):
        super().__init__(None, 0, 1)

    def _exchange(self, parts):
        return parts


def mask_of(lengths, local_size=None):
    parallel = OneMember()
    share = parallel.cut(pack(torch.arange(sum(lengths)), lengths, [0] * len(lengths)))
    with computing(parallel, share):
        made = whole_mask("sdpa", batch_size=1, q_length=1, kv_length=1, local_size=local_size)
    assert isinstance(made, WholePack)
    return made


def test_the_mask_is_that_of_the_whole_pack():
    assert mask_of((2, 1)).mask.int().tolist() == [[[[1, 0, 0], [1, 1, 0], [0, 0, 1]]]]


def test_a_window_is_kept():
    assert mask_of((3,), local_size=2).mask.int().tolist() == [[[[1, 0, 0], [1, 1, 0], [0, 1, 1]]]]


def test_a_rule_of_the_models_own_is_refused():
    parallel = OneMember()
    with computing(parallel, parallel.cut(pack(torch.arange(2), (2,), (0,)))), pytest.raises(ValueError, match="rule"):
        whole_mask("sdpa", batch_size=1, q_length=1, kv_length=1, use_vmap=True)


def test_outside_of_a_shared_pass_nothing_changes():
    made = whole_mask("sdpa", batch_size=1, q_length=2, kv_length=2, allow_is_causal_skip=False)
    assert made.int().tolist() == [[[[1, 0], [1, 1]]]]


@pytest.mark.parametrize("argument", ["s_aux", "position_bias"])
def test_arguments_with_something_for_every_head_are_refused(argument):
    states = torch.ones(1, 2, 3, 4)
    with pytest.raises(ValueError, match=argument):
        distributed_attention("sdpa", None, states, states, states, mask_of((3,)), **{argument: torch.ones(2)})


def test_names_tell_what_computes():
    assert implementation_within("rl_ulysses_rl_packed") == "rl_packed"
    assert implementation_within("sdpa") == "sdpa"
