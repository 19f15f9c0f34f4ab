from __future__ import annotations

import pytest
import torch
from rl_core.contracts.weights import WeightBucket, WeightManifest, WeightSlice, WeightSpec
from rl_core.errors import WeightSyncError
from rl_core.resharding.digest import bit_sum
from rl_rollout_hf.intake import HeldTensor, Intake, manifest_problems


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


def intake(*specs):
    return Intake(3, WeightManifest(entries=specs or (spec("a"),)))


def part(name="a", start=0, stop=4, tensor=None):
    values = torch.arange(8.0).reshape(4, 2)[start:stop] if tensor is None else tensor
    return WeightBucket((WeightSlice(name, values, ((start, stop), (0, 2))),))


DIGEST = {"a": bit_sum(torch.arange(8.0))}


def test_whole_tensors_and_regions_are_taken():
    whole, cut = intake(), intake()
    ((_, region),) = whole.accept(WeightBucket((WeightSlice("a", torch.arange(8.0).reshape(4, 2)),)))
    assert region == ((0, 4), (0, 2))
    whole.check_complete(DIGEST)
    for start, stop in ((2, 4), (0, 1), (1, 2)):
        cut.accept(part(start=start, stop=stop))
    cut.check_complete(DIGEST)


@pytest.mark.parametrize("parts", [[(0, 3)], [(0, 2), (1, 4)], [(0, 4), (0, 4)], []])
def test_gaps_and_doubles_are_not_whole(parts):
    checked = intake()
    for start, stop in parts:
        checked.accept(part(start=start, stop=stop))
    with pytest.raises(WeightSyncError, match=r"version 3 did not come whole: \['a'\]"):
        checked.check_complete(DIGEST)


def test_other_values_have_another_digest():
    checked = intake()
    checked.accept(part(tensor=torch.arange(8.0).reshape(4, 2) + 1))
    with pytest.raises(WeightSyncError, match=r"changed on the way.*\['a'\]"):
        checked.check_complete(DIGEST)


@pytest.mark.parametrize(
    ("bucket", "named"),
    [
        (part("b"), "'b' came, which"),
        (part(start=0, stop=3, tensor=torch.zeros(4, 2)), r"\(4, 2\) float32 for region"),
        (part(tensor=torch.zeros(4, 2, dtype=torch.float64)), "float64 for region"),
        (part(start=2, stop=6, tensor=torch.zeros(4, 2)), "for region"),
    ],
)
def test_slices_that_the_manifest_does_not_have_are_refused(bucket, named):
    with pytest.raises(WeightSyncError, match=named):
        intake().accept(bucket)
