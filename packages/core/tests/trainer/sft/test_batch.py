import numpy as np
import torch
from rl_core.contracts.mini_batch import PLAN_KEY
from rl_core.trainer.sft.batch import sft_batch

T, F = True, False
ITEMS = [
    {"input_ids": np.array([1, 2, 3, 4, 5, 6], np.int32), "response_mask": np.array([F, F, T, F, T, F])},
    {"input_ids": np.array([7, 8], np.int32), "response_mask": np.array([F, T])},
]


def rows(batch, name):
    return [row.tolist() for row in batch.batch[name].unbind()]


def test_a_response_begins_at_the_first_learned_token_and_holds_later_turns_of_others():
    batch = sft_batch(ITEMS, max_length=10)
    assert rows(batch, "input_ids") == [[1, 2, 3, 4, 5, 6], [7, 8]]
    assert rows(batch, "prompts") == [[1, 2], [7]]
    assert rows(batch, "responses") == [[3, 4, 5, 6], [8]]
    assert rows(batch, "response_mask") == [[T, F, T, F], [T]]
    assert batch.batch["response_mask"].dtype == torch.bool


def test_all_rows_are_one_optimizer_step():
    (mini_batch,) = sft_batch(ITEMS, max_length=10).meta_info[PLAN_KEY].batches
    assert np.array_equal(mini_batch.rows, [0, 1])
    assert (mini_batch.totals.num_tokens, mini_batch.totals.num_sequences) == (3, 2)
    assert mini_batch.totals.max_response_length == 10
