"""Sequences, copies of the model and shards over ranks in every arrangement: the numbers are those of one rank."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rl_backend_fsdp.config import FSDPConfig
from rl_backend_fsdp.engine import FSDPEngine
from rl_core.contracts.engine import EngineConfig, EngineRole
from rl_core.errors import ConfigError
from rl_testing.contracts import engine_calls as calls
from rl_testing.contracts.engine_batch import as_batch, make_rows, num_tokens
from rl_testing.contracts.engine_losses import PolicyLoss, ValueLoss
from rl_testing.contracts.engine_suite import ADAM, SGD
from rl_testing.contracts.processes import ProcessRanks
from rl_testing.contracts.ranks import ThreadRanks, run_on_all
from rl_testing.models import save_tiny_model

VOCAB = 64
ROWS = make_rows(VOCAB)
BATCH = as_batch(ROWS)
POLICY, VALUE = EngineRole.POLICY, EngineRole.VALUE
LOSSES = {POLICY: PolicyLoss(num_tokens(ROWS)), VALUE: ValueLoss(num_tokens(ROWS))}
OUTPUTS = {POLICY: {"log_probs", "entropy", "sum_pi_squared"}, VALUE: {"values"}}

_folder = tempfile.TemporaryDirectory(prefix="tiny-models-")
DEFAULTS = {"vocab_size": VOCAB, "with_tokenizer": False}


def model_path(name="qwen2", **options):
    folder = Path(_folder.name, name)
    if not folder.is_dir():
        save_tiny_model(folder, **DEFAULTS | options)
    return str(folder)


@pytest.fixture
def start():
    """``start(world_size, ...)``: initialized engines, closed after the test."""
    opened = []

    def start(world_size, *, role=POLICY, path=None, initialize=True, model=None, **config):
        section = SimpleNamespace(path=path or model_path(), **(model or {}))
        build = partial(FSDPEngine, role, section, EngineConfig(**({"optim": SGD} | config)))
        group = (ThreadRanks if world_size == 1 else ProcessRanks)(world_size, build, dispose=calls.close)
        opened.append(group)
        if initialize:
            run_on_all(group, calls.initialize)
        return group

    yield start
    for group in opened:
        group.close()


def ask(group, call, **arguments):
    return run_on_all(group, partial(call, **arguments))


def run(group, role=POLICY, steps=2, batch=BATCH):
    """Scores, losses, norms and the weights after ``steps`` updates."""
    scores = calls.collected(ask(group, calls.forward, batch=batch, outputs=frozenset(OUTPUTS[role])))
    by_rank = ask(group, calls.train, batches=[batch] * steps, loss_fn=LOSSES[role])
    norms = [{steps[number].result.grad_norm for steps in by_rank} for number in range(steps)]
    assert all(len(found) == 1 for found in norms), "every rank must know the same norm"
    return {
        "scores": scores,
        "losses": [calls.summed([steps[number].metrics for steps in by_rank], "loss") for number in range(steps)],
        "norms": [found.pop() for found in norms],
        "weights": ask(group, calls.stream)[0].weights,
    }


def assert_equal(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=2e-6)


@pytest.fixture(scope="module")
def alone():
    """``alone(role, path)``: what one rank with everything in one packed pass comes to."""
    known = {}

    def result(role=POLICY, path=None):
        if (role, path) not in known:
            section = SimpleNamespace(path=path or model_path())
            group = ThreadRanks(1, partial(FSDPEngine, role, section, EngineConfig(optim=SGD)), dispose=calls.close)
            run_on_all(group, calls.initialize)
            known[role, path] = run(group, role)
            group.close()
        return known[role, path]

    return result


HEAVY, SLOW = pytest.mark.heavy, pytest.mark.slow
LAYOUTS = [
    # world size, sequence parallel size, the rest
    pytest.param(2, 2, {}, marks=HEAVY, id="sp2"),
    pytest.param(2, 2, {"micro_batch_size": 1}, marks=HEAVY, id="sp2-rows"),
    pytest.param(2, 2, {"max_tokens": 5}, marks=HEAVY, id="sp2-tokens"),
    pytest.param(2, 1, {"plugin": FSDPConfig(fsdp_size=1)}, marks=HEAVY, id="copies2"),
    pytest.param(
        2,
        2,
        {"plugin": FSDPConfig(fsdp_size=1, forward_prefetch=True), "model": {"enable_gradient_checkpointing": True}},
        marks=HEAVY,
        id="sp2-copies2-recomputed",
    ),
    pytest.param(4, 4, {}, marks=SLOW, id="sp4"),
    pytest.param(4, 2, {"micro_batch_size": 2}, marks=SLOW, id="sp2-dp2"),
    pytest.param(4, 1, {"plugin": FSDPConfig(fsdp_size=2)}, marks=SLOW, id="copies2-shards2"),
    pytest.param(
        4,
        1,
        {
            "micro_batch_size": 1,
            "plugin": FSDPConfig(fsdp_size=2, use_no_sync_for_gradient_accumulation=True, full_determinism=True),
        },
        marks=SLOW,
        id="copies2-shards2-rows",
    ),
    pytest.param(
        4,
        1,
        {"plugin": FSDPConfig(fsdp_size=2), "micro_batch_size": 1, "model": {"use_remove_padding": False}},
        marks=SLOW,
        id="copies2-shards2-padded",
    ),
    pytest.param(4, 2, {"micro_batch_size": 1, "plugin": FSDPConfig(fsdp_size=2)}, marks=SLOW, id="sp2-dp2-copies2"),
    pytest.param(4, 1, {"plugin": FSDPConfig(reshard_after_forward=2)}, marks=SLOW, id="reshard2"),
]


@pytest.mark.parametrize("role", [POLICY, VALUE])
@pytest.mark.parametrize(("world_size", "sequence", "options"), LAYOUTS)
def test_numbers_are_those_of_one_rank(start, alone, role, world_size, sequence, options):
    group = start(world_size, role=role, sequence_parallel_size=sequence, **options)
    assert_equal(run(group, role), alone(role))


MODELS = [
    # One key-value head, which every rank of four needs a copy of.
    pytest.param(4, 4, "one-kv-head", {"num_key_value_heads": 1}, marks=SLOW),
    # As many as query heads.
    pytest.param(2, 2, "all-kv-heads", {"num_key_value_heads": 4}, marks=HEAVY),
    # Windows of three tokens, shorter than most sequences.
    pytest.param(2, 2, "windows", {"model_type": "mistral", "sliding_window": 3}, marks=HEAVY),
]


@pytest.mark.parametrize(("world_size", "sequence", "name", "options"), MODELS)
def test_models_whose_sequences_can_be_shared(start, alone, world_size, sequence, name, options):
    path = model_path(name, **options)
    assert_equal(run(start(world_size, path=path, sequence_parallel_size=sequence)), alone(path=path))


@pytest.mark.slow
def test_padding_for_equal_shares_never_counts(start):
    """Ten tokens over four ranks make two of padding; the ratio is 1 before the first update."""
    rows = [replace(row, response=row.response[:2], mask=torch.ones(2, dtype=torch.bool)) for row in ROWS[:2]]
    rows = [replace(row, prompt=torch.arange(3), advantages=torch.ones(2)) for row in rows]
    batch = as_batch(rows)
    found = {}
    for size in (1, 4):
        group = start(size, sequence_parallel_size=size)
        scores = calls.collected(ask(group, calls.forward, batch=batch, outputs=frozenset({"log_probs"})))["log_probs"]
        (step,) = [steps[0] for steps in ask(group, calls.train, batches=[batch], loss_fn=PolicyLoss(4))][:1]
        found[size] = scores, step.metrics["loss"].value, step.result.grad_norm
    assert_equal(found[4], found[1])


@pytest.mark.heavy
def test_weights_that_stay_on_the_host_change_no_number(start, alone):
    group = start(2, plugin=FSDPConfig(offload_policy=True), micro_batch_size=2)
    assert_equal(run(group), alone())


@pytest.mark.slow
def test_a_checkpoint_moves_between_arrangements(start, tmp_path):
    """From two copies of two shards to ranks that share sequences, and to one rank."""
    copies = start(4, optim=ADAM, plugin=FSDPConfig(fsdp_size=2))
    ask(copies, calls.train, batches=[BATCH] * 2, loss_fn=LOSSES[POLICY])
    ask(copies, calls.save, directory=tmp_path)
    expected = ask(copies, calls.stream)[0].weights
    for size in (1, 2):
        loaded = start(size, optim=ADAM, sequence_parallel_size=size)
        ask(loaded, calls.load, directory=tmp_path)
        streamed = ask(loaded, calls.stream)
        for rank in streamed:
            torch.testing.assert_close(rank.weights, expected, rtol=0, atol=0)


REFUSED = [
    (
        {"path": {"name": "three-heads", "num_heads": 3, "num_key_value_heads": 3, "hidden_size": 48}},
        "3 attention heads",
    ),
    ({"path": {"name": "linear", "model_type": "qwen3_5_text"}}, "a state from each token to the next"),
    ({"model": {"override_config": {"attn_implementation": "eager"}}}, "'eager'"),
    ({"model": {"use_remove_padding": False}}, "use_remove_padding"),
]


@pytest.mark.heavy
@pytest.mark.parametrize(("options", "reason"), REFUSED)
def test_models_whose_sequences_cannot_be_shared_are_refused(start, options, reason):
    options = dict(options)
    if "path" in options:
        options["path"] = model_path(**options["path"])
    group = start(2, initialize=False, sequence_parallel_size=2, **options)
    for outcome in group.outcomes(calls.initialize):
        assert isinstance(outcome, ConfigError)
        assert reason in str(outcome)


def test_sizes_that_do_not_divide_the_workers_are_refused(start):
    for options, key in (
        ({"sequence_parallel_size": 2}, "ulysses_sequence_parallel_size is 2"),
        ({"plugin": FSDPConfig(fsdp_size=2)}, "fsdp_size is 2"),
        ({"plugin": FSDPConfig(reshard_after_forward=2)}, "reshard_after_forward is 2"),
    ):
        (outcome,) = start(1, initialize=False, **options).outcomes(calls.initialize)
        assert isinstance(outcome, ConfigError)
        assert key in str(outcome)


@pytest.mark.heavy
def test_a_closed_engine_leaves_no_process_group(start):
    group = start(2, initialize=False, plugin=FSDPConfig(fsdp_size=1), sequence_parallel_size=2)
    before = ask(group, calls.num_groups)
    run_on_all(group, calls.initialize)
    assert all(now > then for now, then in zip(ask(group, calls.num_groups), before, strict=True))
    run_on_all(group, calls.close)
    assert ask(group, calls.num_groups) == before
