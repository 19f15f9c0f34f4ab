"""Two runs on the fakes are the same: every compared number of every step, and every weight."""

import pytest
import torch

COMPARED = ("actor/", "critic/", "response_length/", "training/logprob_gap")


def assert_same_run(run, reference):
    assert len(run.metrics) == len(reference.metrics)
    for ours, theirs in zip(run.metrics, reference.metrics, strict=True):
        compared = [key for key in theirs if key.startswith(COMPARED)]
        assert len(compared) > 10
        for key in compared:
            assert ours[key] == pytest.approx(theirs[key], rel=1e-10, abs=1e-12), key
    for mine, wanted in ((run.policy, reference.policy), (run.critic, reference.critic)):
        assert set(mine) == set(wanted)
        for name in wanted:
            torch.testing.assert_close(mine[name], wanted[name], rtol=1e-10, atol=1e-12, msg=name)
