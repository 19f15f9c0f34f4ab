from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from rl_core.algorithms.inputs import LossTotals
from rl_core.contracts.engine import ROWS_TOGETHER_KEY, TokenOutputs
from rl_core.contracts.mini_batch import PLAN_KEY, MiniBatch, MiniBatchPlan
from rl_core.trainer.rm.batch import pair_batch
from rl_core.workers.rm import PairLoss, judged, side_by_side
from rl_dataproto import DataProto

ITEMS = [
    {"chosen_ids": np.array([1, 2, 3], np.int32), "rejected_ids": np.array([1, 4], np.int32), "margin": 0.0},
    {"chosen_ids": np.array([5, 6], np.int32), "rejected_ids": np.array([5, 7, 8, 9], np.int32), "margin": 0.5},
]
SCORES = torch.tensor([2.0, 1.0, 0.5, 0.5])
MARGINS = torch.tensor([0.0, 0.0, 0.5, 0.5])


def test_pairs_become_rows_in_turns_that_stay_together():
    batch = side_by_side(pair_batch(ITEMS, max_length=10))
    assert [row.tolist() for row in batch.batch["input_ids"].unbind()] == [[1, 2, 3], [1, 4], [5, 6], [5, 7, 8, 9]]
    assert [row.tolist() for row in batch.batch["responses"].unbind()] == [[3], [4], [6], [9]]
    assert batch.batch["margin"].tolist() == MARGINS.tolist()
    assert batch.meta_info[ROWS_TOGETHER_KEY] == 2
    assert batch.meta_info[PLAN_KEY].batches[0].rows.tolist() == [0, 1, 2, 3]


def test_a_worker_may_get_no_pair():
    pairs = pair_batch(ITEMS, max_length=10)
    none = pairs.select_idxs([])
    totals = LossTotals(11, 4, 10)
    none.meta_info[PLAN_KEY] = MiniBatchPlan((MiniBatch(np.empty(0, np.int64), totals, 0, 0),))
    batch = side_by_side(none)
    assert len(batch) == 0
    assert batch.meta_info[PLAN_KEY].batches[0].rows.tolist() == []


def test_shares_by_hand():
    losses, shares = judged(SCORES, MARGINS, 0.0, 4)
    assert losses.tolist() == pytest.approx([math.log(1 + math.exp(-1)), math.log(1 + math.exp(0.5))])
    # The second pair is a tie, and there are two more pairs elsewhere.
    assert {name: metric.value for name, metric in shares.items()} == pytest.approx(
        {"accuracy": 1.5 / 4, "margin": 1 / 4, "chosen_score": 2.5 / 4, "rejected_score": 1.5 / 4}
    )


def test_a_score_that_is_not_finite_shows():
    _, shares = judged(torch.tensor([math.nan, 0.0]), torch.zeros(2), 0.0, 1)
    assert math.isnan(shares["accuracy"].value)
    assert math.isnan(shares["chosen_score"].value)
    assert shares["rejected_score"].value == 0.0


def test_the_loss_is_divided_by_all_pairs_of_the_mini_batch():
    loss_fn = PairLoss(LossTotals(num_tokens=20, num_sequences=8, max_response_length=10), center_coef=0.01)
    rows = DataProto.from_dict(tensors={"margin": MARGINS})
    outputs = TokenOutputs(torch.ones(4, 1, dtype=torch.bool), values=SCORES[:, None])
    loss, metrics = loss_fn(outputs, rows)
    pairs = [math.log(1 + math.exp(-1)) + 0.09, math.log(1 + math.exp(0.5)) + 0.01]
    assert float(loss) == pytest.approx(sum(pairs) / 4)
    assert metrics["train/accuracy"].value == 1.5 / 4
    with pytest.raises(RuntimeError, match="did not return values"):
        loss_fn(TokenOutputs(outputs.response_mask), rows)
