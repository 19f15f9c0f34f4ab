from __future__ import annotations

from typing import Any

import pytest
from rl_core.contracts.weights import WeightManifest, WeightSpec
from rl_rollout_vllm.fit_report import FitReport


def param(dtype: str = "float32", exact: bool = True, /, **sources: list[list[int]]) -> dict[str, Any]:
    return {"sources": sources, "dtype": dtype, "exact": exact}


def answer(refused: Any = None, missing: Any = (), /, **params: Any) -> dict[str, Any]:
    return {"params": params, "refused": refused or {}, "missing": list(missing)}


def manifest(*entries: tuple[str, tuple[int, ...], str, str | None]) -> WeightManifest:
    return WeightManifest(
        entries=tuple(
            WeightSpec(name=name, shape=shape, dtype=dtype, tied_to=tied) for name, shape, dtype, tied in entries
        )
    )


Q, K = ("q", (4, 2), "float32", None), ("k", (2, 2), "float32", None)
FUSED = answer(qkv=param(q=[[8, 0, 4, 2]], k=[[4, 0, 2, 2]]))
HALVES = [answer(qkv=param(q=[[4, 4 * rank, 2, 2]], k=[[2, 2 * rank, 1, 2]])) for rank in (0, 1)]
REPLICATED = [answer(qkv=param(q=[[4, 4 * rank, 2, 2]], k=[[4, 0, 2, 2]])) for rank in (0, 1)]


@pytest.mark.parametrize("answers", [[FUSED], HALVES, REPLICATED, [FUSED, FUSED]])
def test_what_is_taken_whole_fits(answers):
    assert FitReport(manifest(Q, K), answers).problems() == []


def test_a_share_that_no_worker_takes_is_a_wrong_shape():
    (problem,) = FitReport(manifest(("q", (6, 2), "float32", None), K), HALVES).problems()
    assert problem == "'q' has shape (6, 2), of which vLLM's model takes 8 of 12 values"


def test_everything_is_listed():
    refused = {"odd": "AssertionError: size", "new": "ValueError: There is no module or parameter named 'new'"}
    report = FitReport(
        manifest(
            Q, ("odd", (1, 1), "float32", None), ("new", (1,), "float32", None), ("head", (4, 2), "float32", "gone")
        ),
        [answer(refused, ["k"], qkv=param(q=[[8, 0, 4, 2]]))],
    )
    assert report.problems() == [
        "'odd' has shape (1, 1), which vLLM's loader refuses (AssertionError: size)",
        "'new' is not in the model",
        "'head' is tied to 'gone', which is not sent",
        "'k' is missing",
    ]


def test_one_odd_number_format_is_a_misfit_and_a_common_one_is_not():
    held = [answer(q=param("bfloat16", q=[[8, 0, 4, 2]]), k=param("bfloat16", k=[[4, 0, 2, 2]]))]
    assert FitReport(manifest(Q, K), held).problems() == []
    odd = manifest(Q, ("k", (2, 2), "float16", None), ("q", (4, 2), "float32", None))
    assert FitReport(odd, held).problems() == ["'k' is float16, in the model bfloat16"]


def test_a_tied_tensor_that_the_model_holds_once_more_is_given_it():
    tied = manifest(Q, ("head", (4, 2), "float32", "q"))
    assert FitReport(tied, [answer(q=param(q=[[8, 0, 4, 2]]))]).taken_ties == {}
    both = [answer(q=param(q=[[8, 0, 4, 2]]), head=param(head=[[8, 0, 4, 2]]))]
    report = FitReport(tied, both)
    assert (report.problems(), report.taken_ties) == ([], {"q": ["head"]})
    assert report.stored_wrongly([{"q": 3, "head": 3}], {"q": 3}) == []
    assert report.stored_wrongly([{"q": 3, "head": 4}], {"q": 3}) == ["head"]


@pytest.mark.parametrize(
    ("answers", "sums", "damaged"),
    [
        ([FUSED], [12], False),
        ([FUSED], [13], True),
        (HALVES, [2**64 - 8, 20], False),
        (HALVES, [6, 7], True),
        ([FUSED, FUSED], [12, 12], False),
        ([FUSED, FUSED], [12, 13], True),
        (REPLICATED, [99, 99], False),  # some parts lie on both workers: nothing can be said
    ],
)
def test_sums_of_the_engines_memory_are_those_of_what_was_sent(answers, sums, damaged):
    found = FitReport(manifest(Q, K), answers).stored_wrongly([{"qkv": value} for value in sums], {"q": 10, "k": 2})
    assert found == (["qkv"] if damaged else [])


@pytest.mark.parametrize("held", [param("bfloat16", q=[[8, 0, 4, 2]]), param("float32", False, q=[[8, 0, 4, 2]])])
def test_converted_and_computed_values_are_not_compared(held):
    assert FitReport(manifest(Q), [answer(w=held)]).stored_wrongly([{"w": 1}], {"q": 10}) == []
