from __future__ import annotations

import pytest
from rl_core.contracts.weights import WeightManifest, WeightSpec
from rl_testing.fakes.manifest import ExpectedTensor, manifest_problems

EXPECTED = {
    "embed": ExpectedTensor((5, 4), "float32"),
    "head": ExpectedTensor((5, 4), "float32"),
}
SHARING = EXPECTED | {"head": ExpectedTensor((5, 4), "float32", tied_to="embed")}


def manifest(*entries):
    return WeightManifest(entries=entries)


def spec(name, shape=(5, 4), dtype="float32", tied_to=None):
    return WeightSpec(name=name, shape=shape, dtype=dtype, tied_to=tied_to)


@pytest.mark.parametrize(
    ("entries", "expected", "problems"),
    [
        ((spec("embed"), spec("head")), EXPECTED, []),
        ((spec("embed"), spec("head", tied_to="embed")), EXPECTED, []),
        ((spec("embed"), spec("head", tied_to="embed")), SHARING, []),
        ((spec("embed"),), SHARING, []),
        ((spec("embed"), spec("alias", tied_to="embed")), SHARING, []),
        ((spec("embed"),), EXPECTED, ["'head' is missing"]),
        ((spec("embed"), spec("head"), spec("stranger")), EXPECTED, ["'stranger' is not in the model"]),
        ((spec("embed"), spec("head")), SHARING, ["'head' is sent on its own, but the model shares it with 'embed'"]),
        ((spec("embed"), spec("head", tied_to="gone")), EXPECTED, ["'head' is tied to 'gone', which is not sent"]),
        (
            (spec("embed", shape=(4, 5)), spec("head", dtype="bfloat16")),
            EXPECTED,
            ["'embed' has shape (4, 5), the model (5, 4)", "'head' is bfloat16, in the model float32"],
        ),
    ],
)
def test_manifest_problems(entries, expected, problems):
    assert manifest_problems(manifest(*entries), expected) == problems
