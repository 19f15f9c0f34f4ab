from __future__ import annotations

import inspect

from rl_core import hookimpl
from rl_core.plugins import ENTRY_POINT_GROUP, HOOK_API, PROJECT_NAME, hookspecs
from rl_core.plugins.distributions import HOOK_NAMES, new_plugin_manager


def test_names_that_others_rely_on():
    assert (PROJECT_NAME, ENTRY_POINT_GROUP, HOOK_API) == ("rl_core", "rl_core.plugins", (1, 0))


def test_the_hooks_and_their_arguments():
    found = {name: list(inspect.signature(getattr(hookspecs, name)).parameters) for name in HOOK_NAMES}
    assert found == {"rl_plugins": [], "rl_step_started": ["step"], "rl_step_finished": ["step", "metrics"]}


def test_no_hook_stops_early_or_replays():
    for name in HOOK_NAMES:
        spec = getattr(new_plugin_manager().hook, name).spec
        assert not spec.opts["firstresult"]
        assert not spec.opts["historic"]


def test_rl_plugins(registry):
    class Plugin:
        @hookimpl
        def rl_plugins(self):
            return []

    assert registry.register_distribution("acme", "1.0", Plugin()).status.is_ok


def test_rl_step_started(registry):
    seen = []

    class Plugin:
        @hookimpl
        def rl_step_started(self, step):
            seen.append(step)

    registry.register_distribution("acme", "1.0", Plugin())
    registry.hook.rl_step_started(step=3)
    assert seen == [3]


def test_rl_step_finished_may_take_a_subset_of_the_arguments(registry):
    seen = []

    class Full:
        @hookimpl
        def rl_step_finished(self, step, metrics):
            seen.append((step, metrics["loss"]))

    class Subset:
        @hookimpl
        def rl_step_finished(self, metrics):
            seen.append(metrics["loss"])

    registry.register_distribution("acme-full", "1.0", Full())
    registry.register_distribution("acme-subset", "1.0", Subset())
    registry.hook.rl_step_finished(step=3, metrics={"loss": 0.5})
    assert sorted(map(str, seen)) == ["(3, 0.5)", "0.5"]
