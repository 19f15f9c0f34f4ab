"""What a policy loss computes over all rows of a step, on the controller, before the rows are cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rl_dataproto import DataProto, lengths, pad_jagged, to_jagged

from rl_core.algorithms.checks import require_same_shape
from rl_core.algorithms.inputs import PrepareInputs
from rl_core.workers.losses import PREPARED_COLUMN

if TYPE_CHECKING:
    from rl_core.plugins import Registry


def prepare_policy_loss(batch: DataProto, actor: Any, seed: tuple[int, ...], registry: Registry) -> DataProto:
    """Add the column that the policy loss reads as ``inputs.prepared``; the batch as it is where the loss has none.

    Args:
        batch: jagged ``old_log_probs``, ``advantages`` and ``response_mask``, every row that will be trained on.
        actor: the ``actor`` section.
        seed: of draws; the run and the step.
        registry: finds the policy loss.

    Raises:
        ShapeError: the loss's ``prepare`` did not return [B, T].
    """
    name = actor.policy_loss.loss_mode
    prepare = registry.load_prepare(name)
    if prepare is None:
        return batch
    mask = pad_jagged(batch.batch["response_mask"], 0).bool()
    old_log_prob, advantages = (
        pad_jagged(batch.batch[column], 0.0, length=mask.shape[1]) for column in ("old_log_probs", "advantages")
    )
    inputs = PrepareInputs(old_log_prob=old_log_prob, advantages=advantages, response_mask=mask, seed=seed)
    prepared = prepare(inputs, actor)
    require_same_shape(f"what policy loss {name!r} prepared", prepared, "response_mask", mask)
    column = to_jagged(prepared, lengths(batch.batch["response_mask"]))
    return batch.select().union(DataProto.from_dict(tensors={PREPARED_COLUMN: column}))
