import logging
from types import SimpleNamespace

import pytest
from rl_core.contracts.sampler import FailureKind, GroupStatus, PromptGroup
from rl_core.errors import MissingRolloutError
from rl_core.trainer.ppo.sampler_failures import failure_metrics, report_failures, require_rollouts, settle_group


def group(name, *failures, size=2):
    made = PromptGroup(uid=name, size=size)
    settle_group(made, failures)
    return made


def test_a_group_is_failed_when_nothing_came():
    assert group("a").status is GroupStatus.FINISHED
    assert group("a", ("late", "lost")).status is GroupStatus.FINISHED
    failed = group("a", ("late", "lost"), ("no", None))
    assert (failed.status, failed.num_failed) == (GroupStatus.FAILED, 2)
    assert failed.kinds == (FailureKind.LOST, FailureKind.ERROR)


def test_failures_are_counted_by_kind():
    groups = [group("a", ("x", "lost"), ("y", "malformed")), group("b", ("z", "error")), group("c")]
    assert {name: metric.value for name, metric in failure_metrics(groups).items()} == {
        "rollout/failed": 3,
        "rollout/lost": 1,
        "rollout/errors": 1,
        "rollout/malformed": 1,
        "rollout/failed_groups": 1,
    }


def test_the_log_names_prompts_and_reasons_once(caplog):
    with caplog.at_level(logging.WARNING):
        report_failures([group("a", ("x", "lost"), ("x", "lost")), group("b"), group("c", ("y", "error"))])
    assert [record.getMessage() for record in caplog.records] == [
        "prompt a: 2 of 2 responses are missing (lost: x)",
        "prompt c: 1 of 2 responses are missing (error: y)",
    ]


def test_the_log_of_a_broken_batch_stays_short(caplog):
    with caplog.at_level(logging.WARNING):
        report_failures([group(str(number), ("x", "lost")) for number in range(100)])
    assert len(caplog.records) == 9
    assert caplog.records[-1].getMessage() == "and 92 more prompts lack responses"


@pytest.mark.parametrize(("limit", "stops"), [(0.5, False), (0.49, True)])
def test_the_limit_is_a_share_of_the_responses(limit, stops):
    config = SimpleNamespace(trainer=SimpleNamespace(max_failed_rollout_fraction=limit))
    groups = [group("a", ("x", "lost"), ("x", "lost")), group("b")]
    if not stops:
        require_rollouts(config, groups)
        return
    with pytest.raises(MissingRolloutError, match=r"2 of 4 rollouts failed .*a: x; a: x"):
        require_rollouts(config, groups)
