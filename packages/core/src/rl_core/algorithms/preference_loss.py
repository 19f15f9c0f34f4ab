"""The loss of a reward model on pairs of a better and a worse answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.functional import logsigmoid

if TYPE_CHECKING:
    from torch import Tensor


def bradley_terry(chosen: Tensor, rejected: Tensor, margin: Tensor, center_coef: float = 0.0) -> Tensor:
    """The loss of each pair, [P], in the type of the scores.

    ::

        loss = -log sigmoid(chosen - rejected - margin) + center_coef * (chosen + rejected)^2

    The first term depends on the difference of two scores alone; the second, which is off by default, says where they lie.

    Args:
        chosen: scores of the better answers, [P].
        rejected: scores of the worse answers, [P].
        margin: by how much the better score is to exceed the worse at least, [P]; 0 asks for no distance.
        center_coef: weight of the second term.

    Source: Bradley and Terry (1952); Ouyang et al. (2022), arXiv 2203.02155, equation 1; the margin from Touvron et al.
    (2023), arXiv 2307.09288, equation 2; the second term from Eisenstein et al. (2023), arXiv 2312.09244, section 2.
    """
    loss = -logsigmoid(chosen - rejected - margin)
    return loss + center_coef * (chosen + rejected).square() if center_coef else loss
