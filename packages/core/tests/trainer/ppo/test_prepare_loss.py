from types import SimpleNamespace

import pytest
import torch
from rl_core.errors import ShapeError
from rl_core.plugins import get_registry
from rl_core.trainer.ppo.prepare_loss import prepare_policy_loss
from rl_core.workers.losses import PREPARED_COLUMN
from rl_dataproto import DataProto, jagged_from_rows


def jagged(*rows, dtype=torch.float32):
    return jagged_from_rows([torch.tensor(row, dtype=dtype) for row in rows])


def batch():
    # Over the masked-in tokens the mean advantage is 0 and the mean log-prob -2: covariances -1, 4; 1, masked, 0.
    return DataProto.from_dict(
        tensors={
            "response_mask": jagged([1, 1], [1, 0, 1], dtype=torch.bool),
            "old_log_probs": jagged([-1.0, -4.0], [-1.0, -99.0, -2.0]),
            "advantages": jagged([-1.0, -2.0], [1.0, 99.0, 2.0]),
        }
    )


def actor(loss_mode, **changes):
    keys = {"kl_cov_ratio": 0.5, "clip_cov_ratio": 0.5, "clip_cov_lb": -10.0, "clip_cov_ub": 10.0}
    return SimpleNamespace(policy_loss=SimpleNamespace(loss_mode=loss_mode, **keys | changes))


def rows(result):
    return [row.tolist() for row in result.batch[PREPARED_COLUMN].unbind()]


def test_the_choice_over_the_whole_step_is_a_column():
    given = batch()
    result = prepare_policy_loss(given, actor("kl_cov"), (0, 1), get_registry())
    assert rows(result) == [[False, True], [True, False, False]]
    assert PREPARED_COLUMN not in set(given.batch.keys())


def test_a_draw_repeats_with_its_seed():
    draws = [
        rows(prepare_policy_loss(batch(), actor("clip_cov"), (0, step), get_registry()))
        for step in (1, 1, 2, 3, 4, 5, 6)
    ]
    assert draws[0] == draws[1]
    assert {str(draw) for draw in draws} != {str(draws[0])}
    assert all(sum(map(sum, draw)) == 2 and not draw[1][1] for draw in draws)


def test_a_loss_that_needs_nothing_leaves_the_batch_alone():
    given = batch()
    assert prepare_policy_loss(given, actor("vanilla"), (0, 1), get_registry()) is given


def test_what_is_prepared_has_one_entry_a_token():
    registry = SimpleNamespace(load_prepare=lambda name: lambda inputs, config: torch.zeros(2))
    with pytest.raises(ShapeError, match="what policy loss 'mine' prepared"):
        prepare_policy_loss(batch(), actor("mine"), (0, 1), registry)
