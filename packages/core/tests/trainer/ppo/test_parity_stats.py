import math

import pytest
import torch
from rl_core.trainer.ppo.parity_stats import correlation, gap_metrics, parity_metrics, parts
from rl_core.trainer.ppo.parity_tokens import UNKNOWN, parity_tokens
from rl_dataproto import DataProto, jagged_from_rows, object_array

NAN = math.nan


def batch(rollout, trainer, mask=None, **tensors):
    mask = mask or [[True] * len(row) for row in rollout]
    columns = {"rollout_log_probs": rollout, "old_log_probs": trainer, "response_mask": mask, **tensors}
    return DataProto.from_dict(
        tensors={
            name: jagged_from_rows([torch.tensor(row) for row in rows]) if isinstance(rows, list) else rows
            for name, rows in columns.items()
        }
    )


def test_every_number_by_hand():
    half, quarter = math.log(1 / 2), math.log(1 / 4)
    one = batch([[half, quarter, 50.0], [half]], [[half, half, NAN], [quarter]], [[True, True, False], [True]])
    metrics = parity_metrics(one)

    # Probabilities 1/2, 1/4, 1/2 against 1/2, 1/2, 1/4; log ratios 0, log 2, log 2; x = 0, log 2, -log 2.
    assert metrics == {
        "training/logprob_gap/mean": pytest.approx(2 * math.log(2) / 3),
        "training/logprob_gap/max": pytest.approx(math.log(2)),
        "training/rollout_probs_diff_valid": 1.0,
        "training/rollout_probs_diff_mean": pytest.approx(1 / 6),
        "training/rollout_probs_diff_max": pytest.approx(1 / 4),
        "training/rollout_probs_diff_std": pytest.approx(math.sqrt(2) / 12),
        "training/rollout_k3_kl": pytest.approx((2 - 1 - math.log(2) + 0.5 - 1 + math.log(2)) / 3),
        # Deviations from 5/12 are 1, -2, 1 and 1, 1, -2 twelfths: (1 - 2 - 2) / 6.
        "training/rollout_actor_probs_pearson_corr": pytest.approx(-0.5),
    }


def test_equal_log_probs_have_no_distance_and_a_constant_no_correlation():
    metrics = parity_metrics(batch([[-1.0, -1.0]], [[-1.0, -1.0]]))
    assert metrics["training/rollout_k3_kl"] == metrics["training/logprob_gap/max"] == 0.0
    assert "training/rollout_actor_probs_pearson_corr" not in metrics
    assert correlation(torch.tensor([1.0, 2.0]).double(), torch.tensor([5.0, 3.0]).double()) == pytest.approx(-1)


def test_a_token_that_the_trainer_holds_for_impossible_leaves_the_divergence_a_number():
    metrics = parity_metrics(batch([[-1.0]], [[-math.inf]]))
    assert metrics["training/logprob_gap/max"] == math.inf
    assert metrics["training/rollout_k3_kl"] == pytest.approx(19, abs=1e-6)


def test_nothing_to_compare():
    assert parity_metrics(batch([[-1.0]], [[-1.0]], [[False]])) == {}
    one = batch([[-1.0]], [[-1.0]])
    assert parity_tokens(one.select(["response_mask", "old_log_probs"])) is None
    none = parity_tokens(one).where(torch.tensor([False]))
    assert gap_metrics(none) == {"training/rollout_probs_diff_valid": 0.0}


def test_tokens_know_their_row_place_and_weights():
    one = batch(
        [[-1.0, -2.0, -3.0], [-4.0]],
        [[-1.0] * 3, [-1.0]],
        [[True, False, True], [True]],
        responses=[[7, 8, 9], [6]],
        entropy=[[0.1, 0.2, 0.3], [0.4]],
    )
    spans = DataProto.from_dict(non_tensors={"version_spans": object_array([((3, 2), (4, 1)), ((4, 1),)])})
    tokens = parity_tokens(one.select().union(spans))
    assert tokens.rollout.tolist() == [-1.0, -3.0, -4.0]
    assert tokens.row.tolist() == [0, 0, 1]
    assert tokens.position.tolist() == [0, 2, 0]
    assert tokens.token.tolist() == [7, 9, 6]
    assert tokens.version.tolist() == [3, 4, 4]
    assert tokens.entropy.tolist() == pytest.approx([0.1, 0.3, 0.4])
    assert tokens.is_current.all()
    assert parity_tokens(one).version.tolist() == [UNKNOWN] * 3
    of_rows = one.union(DataProto.from_dict(tensors={"weight_version": torch.tensor([5, 6])}))
    assert parity_tokens(of_rows).version.tolist() == [5, 5, 6]


def test_parts_by_version_place_and_probability():
    trainer = [[math.log(0.05), math.log(0.3), math.log(0.95)]]
    rollout = [[value + gap for value, gap in zip(trainer[0], (0.5, 0.25, 0.125), strict=True)]]
    one = batch(rollout, trainer)
    spans = DataProto.from_dict(non_tensors={"version_spans": object_array([((1, 1), (2, 2))])})
    found = {part.what: (part.num_tokens, part.mean) for part in parts(parity_tokens(one.union(spans)))}
    assert found == {
        "weights of version 2": (2, pytest.approx(0.1875)),
        "weights of version 1": (1, pytest.approx(0.5)),
        "first token": (1, pytest.approx(0.5)),
        "tokens 2 to 2": (1, pytest.approx(0.25)),
        "tokens 3 to 3": (1, pytest.approx(0.125)),
        "probability 0 to 0.1": (1, pytest.approx(0.5)),
        "probability 0.1 to 0.5": (1, pytest.approx(0.25)),
        "probability 0.9 to 1": (1, pytest.approx(0.125)),
    }


def test_the_parts_of_each_split_hold_every_token_once():
    generator = torch.Generator().manual_seed(0)
    trainer = [(torch.rand(length, generator=generator).log()).tolist() for length in (1, 9, 40, 23)]
    tokens = parity_tokens(batch(trainer, trainer))
    found = parts(tokens)
    assert sum(part.num_tokens for part in found if "probability" in part.what) == len(tokens)
    assert sum(part.num_tokens for part in found if "token" in part.what) == len(tokens)
