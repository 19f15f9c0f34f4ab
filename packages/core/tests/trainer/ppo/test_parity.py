import math
from types import SimpleNamespace

import pytest
import torch
from rl_core.errors import WeightSyncError
from rl_core.trainer.ppo.parity import check_parity
from rl_dataproto import DataProto, jagged_from_rows


def batch(rollout, trainer, mask=(1, 1)):
    return DataProto.from_dict(
        tensors={
            "response_mask": jagged_from_rows([torch.tensor(mask, dtype=torch.bool)]),
            "rollout_log_probs": jagged_from_rows([torch.tensor(rollout)]),
            "old_log_probs": jagged_from_rows([torch.tensor(trainer)]),
        }
    )


def limits(max_gap=None, first=0.1):
    return SimpleNamespace(max_logprob_gap=max_gap, first_sync_tolerance=first)


def test_the_gap_is_taken_over_trained_tokens():
    metrics = check_parity(batch([-1.0, -9.0], [-1.05, -2.0], mask=(1, 0)), limits(), step=1, is_first=True)

    assert metrics["training/logprob_gap/mean"] == pytest.approx(0.05, abs=1e-6)
    assert metrics["training/rollout_probs_diff_max"] == pytest.approx(math.exp(-1) - math.exp(-1.05), abs=1e-6)


def test_the_first_hand_over_has_a_limit_of_its_own():
    with pytest.raises(WeightSyncError, match=r"step 1: .*0\.5 nats.*first_sync_tolerance is 0\.1"):
        check_parity(batch([-1.0, -2.0], [-1.5, -2.5]), limits(), step=1, is_first=True)
    assert check_parity(batch([-1.0, -2.0], [-1.5, -2.5]), limits(), step=2, is_first=False)


def test_a_stop_threshold_holds_at_every_step_and_for_nan():
    with pytest.raises(WeightSyncError, match=r"max_logprob_gap is 0\.2"):
        check_parity(batch([-1.0, -2.0], [-1.5, -2.5]), limits(max_gap=0.2), step=5, is_first=False)
    with pytest.raises(WeightSyncError, match="nan"):
        check_parity(batch([-1.0, -2.0], [float("nan"), -2.5]), limits(max_gap=0.2), step=5, is_first=False)


def test_no_log_probs_no_metrics():
    one = batch([-1.0, -2.0], [-1.5, -2.5])
    assert check_parity(one.select(["response_mask", "old_log_probs"]), limits(), step=1, is_first=True) == {}


def test_tokens_of_older_weights_are_no_sign_of_a_broken_hand_over():
    mixed = batch([-1.0, -9.0], [-1.05, -2.0])
    mixed = mixed.union(
        DataProto.from_dict(tensors={"on_policy_mask": jagged_from_rows([torch.tensor([True, False])])})
    )
    metrics = check_parity(mixed, limits(max_gap=0.1), step=3, is_first=False)
    assert metrics["training/logprob_gap/max"] == pytest.approx(0.05, abs=1e-6)
    assert metrics["training/staleness_gap/mean"] == pytest.approx(7.0)
    assert metrics["training/staleness_gap/max"] == pytest.approx(7.0)


def test_a_gap_of_current_tokens_stops_the_run_whatever_the_others_do():
    mixed = batch([-1.0, -2.0], [-9.0, -2.0]).union(
        DataProto.from_dict(tensors={"on_policy_mask": jagged_from_rows([torch.tensor([True, False])])})
    )
    with pytest.raises(WeightSyncError, match=r"8 nats"):
        check_parity(mixed, limits(max_gap=0.1), step=3, is_first=False)


def test_a_batch_of_older_weights_alone_proves_nothing():
    stale = batch([-1.0, -2.0], [-9.0, -2.0]).union(
        DataProto.from_dict(tensors={"on_policy_mask": jagged_from_rows([torch.tensor([False, False])])})
    )
    metrics = check_parity(stale, limits(max_gap=0.1), step=3, is_first=False)
    assert set(metrics) == {"training/staleness_gap/mean", "training/staleness_gap/max"}
