import numpy as np
from rl_core.contracts.mini_batch import PLAN_KEY
from rl_core.trainer.rm.batch import pair_batch

ITEMS = [
    {"chosen_ids": np.array([1, 2, 3], np.int32), "rejected_ids": np.array([1, 4], np.int32), "margin": 0.0},
    {"chosen_ids": np.array([5, 6], np.int32), "rejected_ids": np.array([5, 7, 8, 9], np.int32), "margin": 0.5},
]


def test_a_row_is_a_pair_and_all_pairs_are_one_optimizer_step():
    batch = pair_batch(ITEMS, max_length=10)
    assert len(batch) == 2
    assert [row.tolist() for row in batch.batch["chosen_ids"].unbind()] == [[1, 2, 3], [5, 6]]
    assert [row.tolist() for row in batch.batch["rejected_ids"].unbind()] == [[1, 4], [5, 7, 8, 9]]
    assert batch.batch["margin"].tolist() == [0.0, 0.5]
    (whole,) = batch.meta_info[PLAN_KEY].batches
    assert whole.rows.tolist() == [0, 1]
    assert (whole.totals.num_sequences, whole.totals.num_tokens, whole.totals.max_response_length) == (4, 11, 10)
