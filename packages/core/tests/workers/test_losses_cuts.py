"""Policy loss, entropy bonus, KL loss and value loss of micro-batches: shares of one number, whatever stands in padding."""

import pytest
import torch
from rl_core.algorithms.inputs import LossTotals
from rl_core.config.actor import ActorConfig, PolicyLossConfig
from rl_core.config.critic import CriticConfig
from rl_core.contracts.engine import TokenOutputs
from rl_core.metrics import merge_metrics, metric_values
from rl_core.plugins import get_registry
from rl_core.workers.losses import PREPARED_COLUMN, PolicyLoss, ValueLoss
from rl_dataproto import DataProto, to_jagged

ROWS, WIDTH = 5, 6
CUTS = [[[0, 1, 2, 3, 4]], [[0], [1], [2], [3], [4]], [[3, 1], [4, 0, 2]], [[2], [0, 1, 3, 4]]]
MODES = ["token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean"]
DRAW = torch.Generator().manual_seed(0)
OUTPUTS = {name: torch.randn(ROWS, WIDTH, dtype=torch.float64, generator=DRAW) for name in ("a", "b")}
COLUMNS = {
    name: torch.randn(ROWS, WIDTH, dtype=torch.float64, generator=DRAW)
    for name in ("old_log_probs", "ref_log_prob", "advantages", "values", "returns")
}
COLUMNS[PREPARED_COLUMN] = torch.rand(ROWS, WIDTH, generator=DRAW) < 0.5
MASK = torch.rand(ROWS, WIDTH, generator=DRAW) < 0.7
MASK[2] = False
TOTALS = LossTotals.of(MASK, WIDTH)


def run(loss, names, cut, fill=None):
    """Loss, gradient of each output in the order of the rows, and metrics; ``fill`` stands where nothing is trained."""
    losses, reports = [], []
    gradients = {name: torch.zeros(ROWS, WIDTH, dtype=torch.float64) for name in names}
    for rows in cut:
        mask = MASK[rows]

        def spoiled(tensor, rows=rows, mask=mask):
            return tensor[rows] if fill is None or tensor.dtype == torch.bool else torch.where(mask, tensor[rows], fill)

        widths = torch.full((len(rows),), WIDTH)
        tensors = {name: to_jagged(spoiled(column), widths) for name, column in COLUMNS.items()}
        given = {name: spoiled(tensor).requires_grad_() for name, tensor in zip(names, OUTPUTS.values(), strict=False)}
        share, report = loss(TokenOutputs(response_mask=mask, **given), DataProto.from_dict(tensors=tensors))
        share.backward()
        losses.append(float(share.detach()))
        reports.append(report)
        for name in names:
            gradients[name][rows] = given[name].grad
    return sum(losses), gradients, metric_values(merge_metrics(reports))


def policy_loss(mode, loss_mode):
    settings = PolicyLossConfig(loss_mode=loss_mode)
    actor = ActorConfig(policy_loss=settings, loss_agg_mode=mode, entropy_coeff=0.1, use_kl_loss=True, kl_loss_coef=0.2)
    return PolicyLoss(actor, TOTALS, get_registry()), ("log_probs", "entropy")


def value_loss(mode):
    return ValueLoss(CriticConfig(loss_agg_mode=mode), TOTALS, get_registry()), ("values",)


LOSSES = {
    "vanilla": lambda mode: policy_loss(mode, "vanilla"),
    "gspo": lambda mode: policy_loss(mode, "gspo"),
    "geo_mean": lambda mode: policy_loss(mode, "geo_mean"),
    "clip_cov": lambda mode: policy_loss(mode, "clip_cov"),
    "kl_cov": lambda mode: policy_loss(mode, "kl_cov"),
    "value": value_loss,
}


@pytest.mark.parametrize("fill", [None, float("nan"), float("inf")])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", LOSSES)
def test_shares_of_any_cut_are_one_number(name, mode, fill):
    loss, outputs = LOSSES[name](mode)
    whole, gradients, metrics = run(loss, outputs, CUTS[0])
    assert abs(whole) > 1e-3
    for cut in CUTS:
        found, found_gradients, found_metrics = run(loss, outputs, cut, fill)
        assert found == pytest.approx(whole, rel=1e-12)
        for output, gradient in gradients.items():
            torch.testing.assert_close(found_gradients[output], gradient, rtol=1e-12, atol=1e-15)
            assert gradient[~MASK].count_nonzero() == 0
            assert gradient[MASK].count_nonzero() > 0
        assert found_metrics == pytest.approx(metrics, rel=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_b19_a_micro_batch_of_masked_rows_adds_nothing(name):
    loss, outputs = LOSSES[name]("token-mean")
    share, gradients, _ = run(loss, outputs, [[2]], float("nan"))
    assert share == 0.0
    assert all(gradient.count_nonzero() == 0 for gradient in gradients.values())


def test_the_entropy_bonus_and_the_kl_loss_are_aggregated_like_the_policy_loss():
    loss, outputs = policy_loss("seq-mean-token-mean", "vanilla")
    total, _, metrics = run(loss, outputs, CUTS[0])
    rows = [row for row in range(ROWS) if MASK[row].any()]
    entropy = sum(OUTPUTS["b"][row][MASK[row]].mean().item() for row in rows) / len(rows)
    assert metrics["actor/entropy"] == pytest.approx(entropy, rel=1e-12)
    expected = metrics["actor/pg_loss"] - 0.1 * entropy + 0.2 * metrics["actor/kl_loss"]
    assert total == pytest.approx(expected, rel=1e-12)
