import asyncio

import numpy as np
import pytest
import torch
from rl_core.contracts.rollout import RolloutOutput, SamplingParams
from rl_core.errors import RlError, WeightSyncError
from rl_core.workers import generation
from rl_core.workers.generation import DEADLINE_KEY, EXTRAS_KEY, SAMPLING_KEY, generate_rows
from rl_dataproto import DataProto, jagged_from_rows, object_array


class Engine:
    """Answers [7, 8] to every request, unless its behaviour for the request says otherwise."""

    has_log_probs = True

    def __init__(self, **behaviours):
        self.behaviours, self.aborted, self.requests = behaviours, [], []

    async def generate(self, request):
        self.requests.append(request)
        behaviour = self.behaviours.get(request.request_id)
        if isinstance(behaviour, Exception):
            raise behaviour
        if behaviour == "hang":
            await asyncio.sleep(3600)
        tokens = () if behaviour == "empty" else (7, 8)
        return RolloutOutput(
            request_id=request.request_id,
            token_ids=tokens,
            log_probs=(-0.5, -1.5)[: len(tokens)] if self.has_log_probs else None,
            finish_reason="abort" if behaviour == "abort" else "stop",
            versions=((3, len(tokens)),),
            extras={"ranks": np.arange(len(tokens))},
        )

    async def abort(self, request_ids):
        self.aborted += request_ids
        behaviour = self.behaviours.get("abort")
        if isinstance(behaviour, Exception):
            raise behaviour
        if behaviour == "hang":
            await asyncio.sleep(3600)


def run(engine, *names, deadline_s=60.0):
    prompts = DataProto.from_dict(
        tensors={
            "prompts": jagged_from_rows([torch.tensor([1, 2])] * len(names), torch.int64),
            "seed": torch.arange(len(names)),
        },
        non_tensors={"request_id": object_array(list(names))},
        meta_info={SAMPLING_KEY: SamplingParams(max_tokens=4), DEADLINE_KEY: deadline_s},
    )
    return asyncio.run(generate_rows(engine, prompts, version=3))


def rows(column):
    return [row.tolist() for row in column.unbind()]


def test_rows_become_requests_and_outputs_become_columns():
    engine = Engine()
    batch = run(engine, "a", "b")

    assert [(r.request_id, r.prompt_ids, r.seed, r.required_version) for r in engine.requests] == [
        ("a", (1, 2), 0, 3),
        ("b", (1, 2), 1, 3),
    ]
    assert rows(batch.batch["responses"]) == [[7, 8]] * 2
    assert rows(batch.batch["input_ids"]) == [[1, 2, 7, 8]] * 2
    assert rows(batch.batch["response_mask"]) == [[True, True]] * 2
    assert rows(batch.batch["rollout_log_probs"]) == [[-0.5, -1.5]] * 2
    assert batch.batch["weight_version"].tolist() == [3, 3]
    assert batch.non_tensor_batch["rollout_error"].tolist() == [None, None]
    assert batch.non_tensor_batch[EXTRAS_KEY][0]["ranks"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        (RlError("too long"), "RlError: too long"),
        (TimeoutError("the engine's own"), "TimeoutError: the engine's own"),
        ("empty", "the response has no tokens (finish reason stop)"),
        ("abort", "the engine ended the request after 2 tokens (finish reason abort)"),
    ],
)
def test_a_request_that_fails_is_one_missing_row(behaviour, error):
    batch = run(Engine(b=behaviour), "a", "b")
    assert batch.non_tensor_batch["rollout_error"].tolist() == [None, error]
    assert rows(batch.batch["responses"]) == [[7, 8], []]
    assert batch.batch["weight_version"].tolist() == [3, -1]


def test_a_request_that_misses_its_deadline_is_taken_out_of_the_engine():
    engine = Engine(b="hang")
    batch = run(engine, "a", "b", deadline_s=0.05)
    assert "no response within 0.05 s" in batch.non_tensor_batch["rollout_error"][1]
    assert engine.aborted == ["b"]


@pytest.mark.parametrize(("behaviour", "error"), [("hang", "TimeoutError"), (RlError("no"), "RlError: no")])
def test_an_engine_that_cannot_even_abort_holds_up_nobody(behaviour, error, monkeypatch):
    monkeypatch.setattr(generation, "ABORT_DEADLINE_S", 0.05)
    batch = run(Engine(b="hang", abort=behaviour), "a", "b", deadline_s=0.05)
    assert batch.non_tensor_batch["rollout_error"][0] is None
    assert f"nor could it be ended: {error}" in batch.non_tensor_batch["rollout_error"][1]


def test_stale_weights_are_no_matter_of_one_row():
    with pytest.raises(WeightSyncError, match="stale"):
        run(Engine(b=WeightSyncError("stale")), "a", "b")


@pytest.mark.parametrize("has_log_probs", [True, False])
def test_the_columns_depend_on_the_engine_and_never_on_how_requests_went(has_log_probs):
    def batch(*names, **behaviours):
        engine = Engine(**behaviours)
        engine.has_log_probs = has_log_probs
        return run(engine, *names)

    parts = [batch("a"), batch("b", b="empty"), batch()]
    joined = DataProto.concat(parts)
    assert len(joined) == 2
    assert ("rollout_log_probs" in joined.batch.keys()) == has_log_probs  # noqa: SIM118 - a TensorDict
