from pathlib import Path

import pytest
from rl_core import builtins
from rl_core.errors import ConfigError
from rl_core.plugins import BackendRecord, Registry, RolloutRecord, Selection
from rl_core.trainer.checkpoint import Checkpoint
from rl_core.trainer.evaluation.configure import configure, notes
from rl_core.trainer.evaluation.source import Source

VAL = "actor_rollout_ref.rollout.val_kwargs"


@pytest.fixture(scope="module")
def registry():
    registry = Registry(Selection())
    registry.register_distribution("rl-core", "1.0", builtins)
    engines = (
        BackendRecord(name="one", target="m:t", summary="One."),
        RolloutRecord(name="two", target="m:t", summary="Two."),
    )
    registry.register_distribution("rl-engines", "1.0", engines)
    return registry


def run(data=None, **val_kwargs):
    """A checkpoint of a run with these keys."""
    values = {
        "actor_rollout_ref": {
            "model": {"path": "base"},
            "actor": {"strategy": "one"},
            "rollout": {"name": "two", "val_kwargs": val_kwargs},
        },
        "data": {"val_files": "theirs.jsonl", **(data or {})},
    }
    return Source(Path("run/global_step_1"), Checkpoint(Path("run/global_step_1"), 1, {}), values)


def model(**sections):
    """A Hugging Face folder, with engines chosen."""
    chosen = {"actor": {"strategy": "one"}, "rollout": {"name": "two"}, **sections}
    return Source(Path("m"), None, {"actor_rollout_ref": {"model": {"path": "m"}, **chosen}})


@pytest.fixture
def sampling(registry):
    """(n, temperature, samples) of an evaluation."""

    def sampling(source, n, *overrides):
        val = configure(source, "rows.jsonl", n, overrides, registry).tree.actor_rollout_ref.rollout.val_kwargs
        return val.n, val.temperature, val.do_sample

    return sampling


def test_one_answer_is_greedy_and_several_are_drawn_at_temperature_1(sampling):
    assert sampling(run(), None) == (1, 0.0, False)
    assert sampling(run(), 1) == (1, 0.0, False)
    assert sampling(run(), 8) == (8, 1.0, True)
    assert sampling(run(n=4), None) == (4, 1.0, True)
    assert sampling(run(), None, f"{VAL}.n=4") == (4, 1.0, True)


def test_what_val_kwargs_say_is_kept(sampling):
    assert sampling(run(temperature=0.6), 8) == (8, 0.6, True)
    assert sampling(run(temperature=0.6), 1) == (1, 0.6, True)
    assert sampling(run(), 8, f"{VAL}.temperature=0.3") == (8, 0.3, True)
    assert sampling(run(), 8, f"{VAL}.temperature=0") == (8, 0.0, False)
    assert sampling(run(), 8, f"{VAL}.do_sample=false") == (8, 0.0, False)
    assert sampling(run(), 8, f"{VAL}.do_sample=true") == (8, 1.0, True)


def test_the_file_and_keys_stand_above_the_runs_own(registry):
    tree = configure(run(), "rows.jsonl", None, ["data.max_response_length=9"], registry).tree
    assert tree.data.val_files == "rows.jsonl"
    assert tree.actor_rollout_ref.rollout.response_length == 9
    assert tree.actor_rollout_ref.model.path == "base"


def test_sizes_of_training_do_not_matter(registry):
    configure(run({"train_batch_size": 10}), "rows.jsonl", None, ["trainer.n_gpus_per_node=1"], registry)


@pytest.mark.parametrize(
    ("source", "n", "override", "message"),
    [
        (run(), None, "data.val_files=other.jsonl", "FILE alone names the rows"),
        (run(), 2, f"{VAL}.n=4", f"--n is 2, but {VAL}.n is 4"),
        (run(), None, "data.nothing=1", "there is no key data.nothing"),
        (
            model(),
            None,
            "actor_rollout_ref.model.path=other",
            "CHECKPOINT alone names the model",
        ),
        (
            model(rollout={}),
            None,
            "data.seed=1",
            "rollout.name has no default",
        ),
    ],
)
def test_contradictions_are_refused(registry, source, n, override, message):
    with pytest.raises(ConfigError, match=message):
        configure(source, "rows.jsonl", n, [override], registry)


def test_notes_tell_what_has_no_effect_what_is_greedy_and_what_was_not_kept(registry):
    source = Source(Path("c"), run().checkpoint, run().values, ("a.token",))
    config = configure(source, "rows.jsonl", 2, [f"{VAL}.temperature=0", "data.use_shm=true"], registry)
    told = "\n".join(notes(config, source))
    assert "data.use_shm has no effect" in told
    assert "all 2 to a prompt are the same" in told
    assert "not set here: a.token" in told
    assert notes(configure(run(), "rows.jsonl", 2, [], registry), run()) == []
