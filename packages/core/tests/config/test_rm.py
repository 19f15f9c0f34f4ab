"""The configuration of ``rl rm``: what differs from that of ``rl sft``, which goes the same way."""

from __future__ import annotations

import pickle

import pytest
from rl_core.config import RM, check_config, compose_rm
from rl_core.config.check import BATCH
from rl_core.config.compose import compose_leniently
from rl_core.config.unknown import RM_ELSEWHERE, SFT_ELSEWHERE

LOCAL = ("model.path=m", "trainer.runtime=local")


@pytest.fixture
def composed(registry):
    return lambda *overrides: compose_rm(overrides, registry=registry)


def test_defaults_and_derived_values(composed):
    config = composed("trainer.seed=7", "trainer.default_local_dir=/run")
    tree = config.tree
    assert (tree.data.seed, tree.data.use_dynamic_bsz, tree.loss.center_coef) == (7, True, 0.0)
    assert (tree.trainer.experiment_name, tree.trainer.export_dir) == ("rm", "/run/huggingface")
    assert tree.data.train_files == "~/data/pairs/train.parquet"
    copy = pickle.loads(pickle.dumps(config))
    assert copy.tree == tree
    assert copy.schema.layout is RM


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("data.messages_key=x", "data.chosen_key and data.rejected_key"),
        ("reward_model.model.path=m", "`rl rm` trains the reward model"),
        ("data.truncation=right", "data.truncation takes one of error, left, drop"),
        ("loss.center_coef=-1", "loss.center_coef must be at least 0"),
        ("loss.centre_coef=1", "Closest: loss.center_coef"),
    ],
)
def test_wrong_keys_and_values_are_explained(override, text, registry):
    (error,) = compose_leniently([override], registry=registry, layout=RM).errors
    assert text in str(error)


def test_hints_are_shared_where_they_say_the_same():
    shared = RM_ELSEWHERE.keys() & SFT_ELSEWHERE.keys() - {"actor_rollout_ref"}
    assert len(shared) > 3
    assert all(RM_ELSEWHERE[key] == SFT_ELSEWHERE[key] for key in shared)


def test_the_check_counts_pairs(composed, registry):
    report = check_config(
        composed(*LOCAL, "data.train_batch_size=8", "data.max_token_len_per_gpu=1500"), None, registry
    )
    (line,) = report.lines(BATCH)
    assert line.startswith("data.train_batch_size: 8 pairs per optimizer step, 8 on the worker")
    (warning,) = report.warnings
    assert "a pair may have 2048 (2 x data.max_length): such a pair runs alone" in warning.text
