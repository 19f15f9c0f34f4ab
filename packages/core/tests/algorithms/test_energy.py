import numpy as np
import pytest
import torch
from rl_core.algorithms import energy as module
from rl_core.algorithms.energy import above_energy_baseline, realized_energy
from rl_core.algorithms.inputs import AdvantageInputs
from rl_core.errors import DataError

MASK = torch.tensor([[True, False, True]])


def _inputs(**extras):
    return AdvantageInputs(token_level_rewards=torch.zeros(1, 3), response_mask=MASK, extras=extras)


def test_energy_gathers_over_trained_tokens():
    log_probs, squares = torch.tensor([[0.25, 0.9, 0.5]]).log(), torch.tensor([[0.1, 0.9, 0.3]])
    columns = {"old_log_probs": log_probs, "sum_pi_squared": squares}
    assert realized_energy(_inputs(**columns), MASK).tolist()[0] == pytest.approx([0.6, 0.6, 0.9])
    weighted = _inputs(**columns, rollout_is_weights=torch.tensor([[2.0, 9.0, 0.5]]))
    assert realized_energy(weighted, MASK).tolist()[0] == pytest.approx([2.4, 2.4, 2.475])


def test_a_certain_token_has_no_energy_even_when_rounding_says_less():
    columns = {"old_log_probs": torch.full((1, 3), 1e-6), "sum_pi_squared": torch.ones(1, 3)}
    assert realized_energy(_inputs(**columns), MASK).count_nonzero() == 0


def test_the_baseline_is_that_of_the_group_at_the_step():
    returns, energy = torch.tensor([[1.0], [0.0], [5.0]]), torch.tensor([[1.0], [3.0], [1.0]], dtype=torch.float64)
    uid, present = np.array(["a", "a", "b"], dtype=object), torch.ones(3, 1).bool()
    assert above_energy_baseline(returns, energy, present, uid, "x").tolist() == [[0.75], [-0.25], [5.0]]
    # The weighted mean does not depend on the scale of the weights.
    assert above_energy_baseline(returns, energy * 1e-200, present, uid, "x")[:2].tolist() == [[0.75], [-0.25]]
    with pytest.raises(DataError, match="x compares"):
        above_energy_baseline(returns, energy, present, None, "x")


def test_parts_do_not_show(monkeypatch):
    generator = torch.Generator().manual_seed(3)
    present = torch.rand(6, 5, generator=generator) < 0.7
    extras = {name: torch.rand(6, 5, generator=generator) for name in ("sum_pi_squared", "rollout_is_weights")}
    inputs = AdvantageInputs(
        token_level_rewards=torch.zeros(6, 5),
        response_mask=present,
        extras=extras | {"old_log_probs": -torch.rand(6, 5, generator=generator)},
    )
    returns, uid = torch.rand(6, 5, generator=generator), np.array(list("ababba"), dtype=object)

    def found():
        energy = realized_energy(inputs, present)
        return energy, above_energy_baseline(returns, energy, present, uid, "x")

    whole = found()
    monkeypatch.setattr(module, "ROWS_AT_A_TIME", 4)
    monkeypatch.setattr(module, "STEPS_AT_A_TIME", 2)
    assert all(torch.equal(one, other) for one, other in zip(found(), whole, strict=True))
