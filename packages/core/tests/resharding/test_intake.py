from __future__ import annotations

import pytest
import torch
from rl_core.contracts.weights import WeightBucket, WeightManifest, WeightSlice, WeightSpec
from rl_core.errors import WeightSyncError
from rl_core.resharding.digest import bit_sum
from rl_core.resharding.intake import Intake


def manifest(*entries):
    return WeightManifest(entries=entries)


def spec(name, shape=(5, 4), dtype="float32", tied_to=None):
    return WeightSpec(name=name, shape=shape, dtype=dtype, tied_to=tied_to)


def bucket(name, tensor, region=None):
    return WeightBucket((WeightSlice(name, tensor, region),))


def test_whole_tensors_are_complete():
    tensor = torch.arange(20.0).reshape(5, 4)
    intake = Intake(1, manifest(spec("embed"), spec("head", tied_to="embed")))
    accepted = intake.accept(bucket("embed", tensor))
    assert [region for _, region in accepted] == [((0, 5), (0, 4))]
    intake.check_complete({"embed": bit_sum(tensor)})


def test_regions_add_up_in_any_cut():
    tensor = torch.randn(5, 4)
    intake = Intake(1, manifest(spec("embed")))
    for region in (((0, 5), (0, 1)), ((0, 2), (1, 4)), ((2, 5), (1, 4))):
        (top, bottom), (left, right) = region
        intake.accept(bucket("embed", tensor[top:bottom, left:right], region))
    intake.check_complete({"embed": bit_sum(tensor)})


@pytest.mark.parametrize(
    "regions",
    [
        [((0, 3), (0, 4))],
        [((0, 3), (0, 4)), ((2, 5), (0, 4))],
        [((0, 5), (0, 4)), ((0, 5), (0, 4))],
        [((0, 3), (0, 4)), ((0, 2), (0, 4))],  # 20 values, but not all of the tensor
    ],
)
def test_gaps_and_overlaps_are_not_complete(regions):
    intake = Intake(7, manifest(spec("embed")))
    for region in regions:
        intake.accept(bucket("embed", torch.zeros([stop - start for start, stop in region]), region))
    with pytest.raises(WeightSyncError, match="version 7 did not come whole: \\['embed'\\]"):
        intake.check_complete({"embed": 0})


def test_changed_and_missing_tensors_are_listed_together():
    intake = Intake(1, manifest(spec("embed"), spec("head")))
    intake.accept(bucket("embed", torch.ones(5, 4)))
    with pytest.raises(WeightSyncError, match=r"whole: \['head'\].*differs\): \['embed'\]"):
        intake.check_complete({"embed": 1, "head": 2})


@pytest.mark.parametrize(
    "part",
    [
        bucket("stranger", torch.zeros(5, 4)),
        bucket("tied", torch.zeros(5, 4)),
        bucket("embed", torch.zeros(4, 5)),
        bucket("embed", torch.zeros(5, 4, dtype=torch.float64)),
        bucket("embed", torch.zeros(2, 4), ((4, 6), (0, 4))),
        bucket("embed", torch.zeros(2, 4), ((0, 3), (0, 4))),
        bucket("embed", torch.zeros(5), ((0, 5),)),
    ],
)
def test_slices_that_the_manifest_does_not_announce_are_refused(part):
    intake = Intake(1, manifest(spec("embed"), spec("tied", tied_to="embed")))
    with pytest.raises(WeightSyncError, match=part.slices[0].name):
        intake.accept(part)
