import inspect
import sys
from types import ModuleType

import pytest
from rl_core.errors import PluginNotFoundError
from rl_core.plugins import DispatchModeRecord, Registry, Selection
from rl_core.single_controller.base import decorator
from rl_core.single_controller.base.decorator import (
    Dispatch,
    DispatchMode,
    Execute,
    MethodSpec,
    make_nd_compute_dataproto_dispatch_fn,
    method_specs,
    register,
    resolve_mode,
)
from rl_core.single_controller.base.dispatch import BUILTIN_MODES


def split(scope, *args):
    return []


def gather(scope, outputs):
    return outputs


CUSTOM = {"dispatch_fn": split, "collect_fn": gather}


class Actor:
    @register()
    def plain(self, x: int) -> int:
        """Doc."""
        return x + 1

    @register(
        dispatch_mode=Dispatch.ONE_TO_ALL, execute_mode=Execute.RANK_ZERO, blocking=False, materialize_futures=False
    )
    async def rank_zero(self):
        return 1

    def unregistered(self):
        return 2


def test_the_defaults():
    assert method_specs(Actor)["plain"] == MethodSpec(Dispatch.ALL_TO_ALL, Execute.ALL, True, True)


def test_what_was_said_is_kept():
    assert method_specs(Actor)["rank_zero"] == MethodSpec(Dispatch.ONE_TO_ALL, Execute.RANK_ZERO, False, False)


def test_only_registered_methods_are_found():
    assert set(method_specs(Actor)) == {"plain", "rank_zero"}


def test_the_function_stays_what_it_is():
    assert Actor().plain(1) == 2
    assert Actor.plain.__doc__ == "Doc."
    assert inspect.iscoroutinefunction(Actor.rank_zero)


def test_an_override_keeps_the_registration():
    class Child(Actor):
        def plain(self, x):
            return x

        @register(dispatch_mode=Dispatch.RANK_ZERO)
        def rank_zero(self):
            return 3

    assert method_specs(Child)["plain"] == method_specs(Actor)["plain"]
    assert method_specs(Child)["rank_zero"].dispatch_mode is Dispatch.RANK_ZERO


def test_a_removed_method_is_gone():
    class Child(Actor):
        plain = None

    assert set(method_specs(Child)) == {"rank_zero"}


@pytest.mark.parametrize("mode", list(Dispatch))
def test_a_member_of_dispatch_is_its_mode(mode):
    assert resolve_mode(MethodSpec(mode, Execute.ALL, True, True)) is BUILTIN_MODES[mode]


def test_a_name_of_a_member_is_the_member():
    class Named:
        @register(dispatch_mode="DP_COMPUTE")
        def f(self):
            pass

    assert method_specs(Named)["f"].dispatch_mode is Dispatch.DP_COMPUTE


def test_execute_rank_zero_is_the_rank_zero_mode():
    assert resolve_mode(method_specs(Actor)["rank_zero"]) is BUILTIN_MODES[Dispatch.RANK_ZERO]


def test_custom_modes():
    spec = MethodSpec(CUSTOM, Execute.ALL, True, True)
    assert resolve_mode(spec) == DispatchMode("split", split, gather)
    mesh = make_nd_compute_dataproto_dispatch_fn("train")
    assert resolve_mode(MethodSpec(mesh, Execute.ALL, True, True)) is mesh


@pytest.fixture
def registry(monkeypatch):
    """A registry with one dispatch mode, ``ring`` of acme."""
    module = ModuleType("acme_modes")
    module.RING, module.BROKEN = CUSTOM, 3
    monkeypatch.setitem(sys.modules, "acme_modes", module)
    registry = Registry(Selection())
    registry.register_distribution(
        "acme",
        "1.0",
        [
            DispatchModeRecord(name=name.lower(), target=f"acme_modes:{name}", summary="A mode.")
            for name in ("RING", "BROKEN")
        ],
    )
    monkeypatch.setattr(decorator, "get_registry", lambda: registry)


@pytest.mark.usefixtures("registry")
def test_another_name_is_a_plugins():
    mode = resolve_mode(MethodSpec("ring", Execute.ALL, True, True))
    assert (mode.dispatch_fn, mode.collect_fn) == (split, gather)
    with pytest.raises(PluginNotFoundError, match="rnig"):
        resolve_mode(MethodSpec("rnig", Execute.ALL, True, True))
    with pytest.raises(TypeError, match="got 3"):
        resolve_mode(MethodSpec("broken", Execute.ALL, True, True))


def test_nothing_is_added_to_dispatch_at_run_time():
    with pytest.raises(TypeError):
        Dispatch("ring", names=["ring"])
    assert len(Dispatch) == 8


def test_mistakes_are_said_where_they_are_made():
    with pytest.raises(TypeError, match=r"write @register\(\) with parentheses above .*bare"):

        @register
        def bare(self):
            pass

    with pytest.raises(TypeError, match="execute_mode is a member of Execute; got 'all'"):
        register(execute_mode="all")
    with pytest.raises(TypeError, match="dispatch_fn and collect_fn; got"):
        register(dispatch_mode={"dispatch_fn": split})
    with pytest.raises(TypeError, match="got 3"):
        register(dispatch_mode=3)


@pytest.mark.parametrize("mode", [Dispatch.DP_COMPUTE_PROTO, Dispatch.DP_COMPUTE, CUSTOM, "ring"])
def test_one_worker_cannot_do_the_work_of_all(mode):
    with pytest.raises(ValueError, match="RANK_ZERO calls one worker, but"):
        register(dispatch_mode=mode, execute_mode=Execute.RANK_ZERO)
