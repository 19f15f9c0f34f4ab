import time

from rl_core.runtime.ray.activity import Beat
from rl_core.runtime.ray.health import Member, Pending
from rl_core.runtime.ray.heartbeat import Sign
from rl_core.runtime.ray.waiting import waiting_lines, waiting_report
from rl_core.single_controller.base.progress import Progress

BARRIER = '  File "/x/base/torch_collective.py", line 129, in _all_gather\n    work.wait()'
COMPUTING = '  File "/x/model.py", line 7, in forward\n    y = self.mlp(x)'


def call(rank, *, method="update_actor", since_s=400.0, group="actor"):
    member = Member(f"{group}/{rank}", group, rank, 4, "id", "10.0.0.7", 100 + rank, 0.0, None)
    return Pending(member, method, Progress(3, "update_actor"), time.monotonic() - since_s)


def sign(stack, *, age_s=0.5, call="update_actor"):
    return Sign(Beat(call, "step 3", 399.0, stack, ""), age_s)


def test_nothing_is_said_before_the_soft_deadline():
    assert waiting_report([call(0, since_s=9.0)], {}, 10.0, late_s=5.0) is None
    assert waiting_report([], {}, 0.0, late_s=5.0) is None


def test_who_waits_in_a_collective_and_for_whom_with_the_stacks():
    report = waiting_report(
        [call(0), call(1), call(2)],
        {"actor/0": sign(BARRIER), "actor/1": sign(COMPUTING), "actor/2": sign(BARRIER)},
        300.0,
        late_s=5.0,
    )
    assert report is not None
    assert report.splitlines() == [
        "watchdog: the run has waited 400 s for update_actor (step 3, phase update_actor).",
        "  In a collective operation: actor/0, actor/2. They wait for: actor/1.",
        "  actor/1 (node 10.0.0.7, pid 101): update_actor since 400 s",
        '      File "/x/model.py", line 7, in forward',
        "        y = self.mlp(x)",
        "  actor/0 (node 10.0.0.7, pid 100): update_actor since 400 s",
        '      File "/x/base/torch_collective.py", line 129, in _all_gather',
        "        work.wait()",
        "  actor/2 (node 10.0.0.7, pid 102): update_actor since 400 s",
        '      File "/x/base/torch_collective.py", line 129, in _all_gather',
        "        work.wait()",
    ]


def test_a_stopped_worker_is_waited_for_even_if_it_stopped_inside_the_collective():
    lines = waiting_lines(
        [call(0), call(1)], {"actor/0": sign(BARRIER), "actor/1": sign(BARRIER, age_s=90.0)}, late_s=5.0
    )
    assert lines[0] == "  In a collective operation: actor/0. They wait for: actor/1."
    assert lines[1] == (
        "  actor/1 (node 10.0.0.7, pid 101): update_actor since 400 s; its last heartbeat, 90 s ago, came from update_actor: "
        "the process is stopped, gone, or holds the interpreter"
    )


def test_groups_are_not_mixed():
    lines = waiting_lines(
        [call(0), call(0, group="critic"), call(1)],
        {"actor/0": sign(BARRIER), "critic/0": sign(COMPUTING), "actor/1": sign(BARRIER)},
        late_s=5.0,
    )
    assert not [line for line in lines if "They wait for" in line]


def test_a_call_that_has_not_begun_says_what_stands_before_it():
    lines = waiting_lines([call(0, method="generate")], {"actor/0": sign(COMPUTING)}, late_s=5.0)
    assert lines[0] == (
        "  actor/0 (node 10.0.0.7, pid 100): generate since 400 s; it has not begun: the worker is in update_actor since 400 s"
    )
    assert waiting_lines([call(0)], {"actor/0": sign("", call=None)}, late_s=5.0)[0].endswith("; it has not begun")
    assert waiting_lines([call(0)], {}, late_s=5.0)[0].endswith("; it has not sent a heartbeat yet")


def test_a_wait_outside_every_phase_says_so():
    lost = Pending(call(0).member, "__init__", Progress(), time.monotonic() - 9.0)
    report = waiting_report([lost], {}, 5.0, late_s=5.0)
    assert report is not None
    assert report.startswith("watchdog: the run has waited 9 s for __init__ (no phase).")
