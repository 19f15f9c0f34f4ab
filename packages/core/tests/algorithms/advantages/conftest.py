"""Small batches for estimators."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rl_core.algorithms.inputs import AdvantageInputs


@pytest.fixture
def outcomes():
    """outcomes(rewards, uid, lengths) -> inputs with each reward on the last token of its row."""

    def outcomes(rewards, uid, lengths=None, width=4, dtype=torch.float64, **extras):
        lengths = torch.tensor(lengths or [1] * len(rewards), dtype=torch.int64)
        mask = torch.arange(width) < lengths[:, None]
        token_level = torch.zeros(mask.shape, dtype=dtype)
        for row, (reward, length) in enumerate(zip(rewards, lengths.tolist(), strict=True)):
            token_level[row, max(length - 1, 0)] = reward
        return AdvantageInputs(
            token_level_rewards=token_level, response_mask=mask, uid=np.array(list(uid), dtype=object), extras=extras
        )

    return outcomes


@pytest.fixture
def rows():
    """rows(advantages, inputs) -> the one advantage of each row, after checking that the row holds no other."""

    def rows(advantages, inputs):
        found = []
        for row, keep in zip(advantages, inputs.response_mask, strict=True):
            assert row[keep].unique().numel() <= 1
            assert row[~keep].count_nonzero() == 0
            found.append(row[keep][0].item() if keep.any() else 0.0)
        return found

    return rows
