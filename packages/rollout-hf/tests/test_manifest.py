from __future__ import annotations

import pytest
from rl_core.contracts.weights import WeightManifest, WeightSpec
from rl_rollout_hf.manifest import HeldTensor, manifest_problems


def spec(name, shape=(4, 2), dtype="float32", tied_to=None):
    return WeightSpec(name=name, shape=shape, dtype=dtype, tied_to=tied_to)


def held(*names, dtype="float32", shares=None, shape=(4, 2)):
    return {name: HeldTensor(shape, dtype, shares or name) for name in names}


def problems(entries, model):
    return manifest_problems(WeightManifest(entries=tuple(entries)), model)


def test_a_manifest_that_fits():
    assert problems([spec("a"), spec("b")], held("a", "b")) == []


@pytest.mark.parametrize(
    ("entries", "named"),
    [
        ([spec("a")], "'b' is missing"),
        ([spec("a"), spec("b"), spec("c")], "'c' is not in the model"),
        ([spec("a"), spec("b", (2, 4))], r"'b' has shape (2, 4), the model (4, 2)"),
        ([spec("a"), spec("b", dtype="int64")], "'b' is int64, in the model float32"),
        ([spec("a"), spec("b", tied_to="c")], "'b' is tied to 'c', which is not sent"),
    ],
)
def test_what_does_not_fit_is_named(entries, named):
    assert problems(entries, held("a", "b")) == [named]


def test_everything_is_named_at_once():
    assert len(problems([spec("c"), spec("a", (1,)), spec("d", tied_to="e")], held("a", "b"))) == 4


def test_the_trainer_may_send_in_another_type_but_in_one():
    model = held("a", "b", "c", dtype="bfloat16")
    assert problems([spec("a"), spec("b"), spec("c")], model) == []
    # What is kept in the generator's type for a reason may come in it.
    assert problems([spec("a"), spec("b"), spec("c", dtype="bfloat16")], model) == []
    assert problems([spec("a"), spec("b"), spec("c", dtype="float16")], model) == [
        "'c' is float16, in the model bfloat16"
    ]


def test_integers_are_not_made_of_floats():
    model = held("a", "b") | held("steps", dtype="int64")
    assert problems([spec("a"), spec("b"), spec("steps")], model) == ["'steps' is float32, in the model int64"]


def test_tensors_that_share_memory_come_once():
    model = held("embed", "head", shares="embed")
    assert problems([spec("embed")], model) == []
    assert problems([spec("embed"), spec("head", tied_to="embed")], model) == []
    assert problems([spec("head"), spec("embed", tied_to="head")], model) == []
    (found,) = problems([spec("embed"), spec("head")], model)
    assert found == "'embed' and 'head' are sent apart, but share their memory in the model"


def test_what_only_the_trainer_ties_must_still_be_listed():
    model = held("embed", "head")
    assert problems([spec("embed"), spec("head", tied_to="embed")], model) == []
    assert problems([spec("embed")], model) == ["'head' is missing"]
    assert problems([spec("embed"), spec("alias", tied_to="embed"), spec("head")], model) == []
