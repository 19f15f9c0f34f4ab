from __future__ import annotations

import torch
from rl_core.single_controller.base.collective import SoloCollective
from rl_testing.fakes.parts import Part, cut, gather_whole

PLACES = {
    "embed": Part("embed", 0, 4, sends=True),
    "head": Part("embed", 1, 3, sends=False, is_copy=True),
}


class Replay:
    """A collective whose other ranks sent ``others``."""

    def __init__(self, *others):
        self.others = list(others)

    def all_gather_object(self, obj, timeout_s=None):
        return [obj, *self.others]


def test_cutting_takes_rows_of_the_source_and_copies():
    whole = {"embed": torch.arange(8.0).reshape(4, 2)}

    parts = cut(whole, PLACES)
    whole["embed"].zero_()

    assert parts["head"].tolist() == [[2.0, 3.0], [4.0, 5.0]]
    assert parts["embed"][3].tolist() == [6.0, 7.0]


def test_scalars_are_not_cut():
    assert cut({"embed": torch.tensor(5.0)}, PLACES)["head"].item() == 5.0


def test_gathering_joins_what_is_sent_in_rank_order_and_keeps_the_order_of_names():
    parts = {"b": torch.tensor([[1.0]]), "a": torch.tensor([[9.0]])}
    places = {"b": Part("b", 0, 1, sends=True), "a": Part("a", 0, 1, sends=False)}

    whole = gather_whole(parts, places, ["b", "a"], Replay({"b": torch.tensor([[2.0]])}, {"a": torch.tensor([[3.0]])}))

    assert list(whole) == ["b", "a"]
    assert whole["b"].tolist() == [[1.0], [2.0]]
    assert whole["a"].tolist() == [[3.0]]


def test_gathered_tensors_are_copies():
    parts = {"b": torch.zeros(2, 2)}

    gather_whole(parts, {"b": Part("b", 0, 2, sends=True)}, ["b"], SoloCollective())["b"].fill_(1.0)

    assert parts["b"].sum() == 0
