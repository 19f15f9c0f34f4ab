import pytest
from rl_core.contracts.weights import WeightManifest, WeightSpec
from rl_core.resharding.dtypes import fits_dtype, is_float, usual_dtype


def manifest(*dtypes: str) -> WeightManifest:
    return WeightManifest(
        entries=tuple(WeightSpec(name=str(place), shape=(1,), dtype=dtype) for place, dtype in enumerate(dtypes))
    )


def test_the_usual_type_is_that_of_most_floating_point_tensors():
    assert usual_dtype(manifest("int64", "int64", "bfloat16", "float32", "bfloat16")) == "bfloat16"
    assert usual_dtype(manifest("int64")) is None


@pytest.mark.parametrize(
    ("sent", "held", "fits"),
    [
        ("bfloat16", "bfloat16", True),
        ("float32", "float32", True),
        ("bfloat16", "float32", True),
        ("float16", "float32", False),
        ("bfloat16", "int64", False),
        ("int64", "int64", True),
    ],
)
def test_the_usual_type_may_be_converted_and_no_other(sent, held, fits):
    assert fits_dtype(sent, {held}, "bfloat16") == fits


def test_only_names_of_floating_point_types_are_floats():
    assert [is_float(name) for name in ("float32", "bfloat16", "int8", "Tensor", "nothing")] == [
        True,
        True,
        False,
        False,
        False,
    ]
