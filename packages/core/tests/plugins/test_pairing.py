from __future__ import annotations

import pytest
from rl_core.errors import PluginConflictError, PluginNotFoundError
from rl_core.plugins import BackendRecord, ReshardingRecord, RolloutRecord


def mover(name, backend="*", rollout="*", transport="generic", **fields):
    fields = {"target": "acme:R", "summary": "A mover.", **fields}
    return ReshardingRecord(name=name, backend=backend, rollout=rollout, transport=transport, **fields)


@pytest.fixture
def pair(registry):
    """pair((dist, records), ..., transports=) -> the pairing of backend b and rollout r."""

    def pair(*distributions, transports=None):
        engines = [
            BackendRecord(name="b", target="acme:B", summary="A backend.", aliases=("b2",)),
            RolloutRecord(name="r", target="acme:R", summary="A rollout."),
        ]
        registry.register_distribution("engines", "1.0", engines)
        for name, records in distributions:
            registry.register_distribution(name, "1.0", records)
        return registry.pairing("b2", "r", transports)

    return pair


GENERIC = ("core", [mover("generic")])


@pytest.mark.parametrize("order", [1, -1])
def test_the_most_specific_wins_whatever_the_order(pair, order):
    one_side, both = ("one-side", [mover("half", backend="b")]), ("both-sides", [mover("pair", "b", "r")])
    others = ("others", [mover("x", "x", "r"), mover("y", "b", "y")])
    pairing = pair(*[GENERIC, one_side, both, others][::order])
    assert pairing.record.name == "pair"
    assert pairing.reason == "made for this pair, (b, r, generic) of both-sides 1.0"


def test_one_side_beats_none(pair):
    pairing = pair(GENERIC, ("one-side", [mover("half", rollout="r")]))
    assert pairing.record.name == "half"
    assert "made for one side of this pair" in pairing.reason


def test_the_generic_one_serves_any_pair(pair):
    assert pair(GENERIC).reason == "works for any pair, (*, *, generic) of core 1.0"


def test_any_transport_beats_generic_among_equals(pair):
    assert pair(GENERIC, ("movers", [mover("ipc", transport="ipc")])).record.name == "ipc"


def test_the_pair_counts_more_than_the_transport(pair):
    pairing = pair(("pairs", [mover("pair", "b", "r")]), ("movers", [mover("ipc", transport="ipc")]))
    assert pairing.record.name == "pair"


def test_transports_filter_and_order(pair, registry):
    movers = ("movers", [mover("ipc", transport="ipc"), mover("shm", transport="shm")])
    assert pair(GENERIC, movers, transports=["shm", "ipc", "generic"]).record.name == "shm"
    assert registry.pairing("b", "r", ["generic"]).record.name == "generic"
    assert registry.pairing("b", "r", ["ipc", "shm"]).record.name == "ipc"


def test_equals_of_one_distribution_follow_its_order(pair):
    assert pair(("movers", [mover("shm", transport="shm"), mover("ipc", transport="ipc")])).record.name == "shm"


@pytest.mark.parametrize(
    "rivals",
    [
        [mover("p", "b", "r"), mover("q", "b", "r")],
        [mover("p", backend="b"), mover("q", rollout="r")],
        [mover("p", transport="ipc"), mover("q", transport="shm")],
    ],
)
def test_equals_of_two_distributions_are_a_conflict(pair, rivals):
    with pytest.raises(PluginConflictError, match=r"registered twice: acme-p 1.0 and acme-q 1.0") as caught:
        pair(GENERIC, ("acme-p", rivals[:1]), ("acme-q", rivals[1:]))
    assert "RL_BLOCK_PLUGINS=acme-q" in str(caught.value)


def test_transports_settle_what_would_be_a_conflict(pair):
    rivals = [("acme-p", [mover("p", transport="ipc")]), ("acme-q", [mover("q", transport="shm")])]
    assert pair(*rivals, transports=["shm", "ipc"]).record.name == "q"


def test_a_name_taken_twice_is_a_conflict_even_with_another_key(pair):
    with pytest.raises(PluginConflictError, match="resharding name 'p' is registered twice"):
        pair(("acme-p", [mover("p", "b", "r")]), ("acme-q", [mover("p", "x", "y")]))


def test_what_is_not_available_is_passed_over_with_the_reason(pair):
    needy = mover("needy", "b", "r", requires=("no-such-engine>=1",))
    newer = mover("newer", "b", "r", hook_api="1.9")
    pairing = pair(GENERIC, ("needs", [needy]), ("new", [newer]))
    assert pairing.record.name == "generic"
    assert "needy is passed over: needs no-such-engine>=1 (found nothing)" in pairing.reason
    assert "newer is passed over: incompatible: needs hook API 1.9" in pairing.reason


def test_nothing_fits(pair):
    with pytest.raises(PluginNotFoundError) as caught:
        pair(("acme", [mover("other", "x", "y"), mover("ipc", transport="ipc")]), transports=["shm"])
    assert str(caught.value).splitlines()[:2] == [
        "no resharding joins backend 'b' and rollout 'r' by transports ['shm'].",
        "  Registered: other (x, y, generic), ipc (*, *, ipc).",
    ]


def test_the_engines_must_be_installed(pair, registry):
    pair(GENERIC)
    with pytest.raises(PluginNotFoundError, match="backend 'c' is not known"):
        registry.pairing("c", "r")
    with pytest.raises(PluginNotFoundError, match="rollout 's' is not known"):
        registry.pairing("b", "s")
