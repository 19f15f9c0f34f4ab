from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from rl_core.config.help_text import field_help
from rl_core.config.schema import MOUNT_PATHS, Mount, Schema, core_schema, join, mount_key
from rl_core.errors import ConfigError
from rl_core.plugins import MOUNT_POINTS, BackendRecord


@dataclass
class Inner:
    x: int = 1


@dataclass
class Own:
    size: int = 3
    extra: dict = field(default_factory=dict)
    maybe: dict | None = None
    inner: Inner = field(default_factory=Inner)
    inner_or_none: Inner | None = None
    text: str | None = None


def mount(section="critic", key="own", cls=Own):
    record = BackendRecord(name="b", target="m:t", summary="s", config="m:C", config_key="own", mount=("critic",))
    return Mount(section, key, cls, record)


def test_every_mount_point_has_a_place():
    assert set(MOUNT_PATHS) == set(MOUNT_POINTS)
    assert set(MOUNT_PATHS.values()) <= set(core_schema().sections)


def test_mounted_keys_belong_to_their_plugin():
    schema = Schema([mount()])
    assert schema.keys["critic.own.size"].default == 3
    assert schema.owner("critic.own.size").name == "b"
    assert schema.owner("critic.enable") is None
    assert schema.keys["critic.enable"].owner is None


def test_types_decide_what_may_stand_below_a_key():
    schema = Schema([mount()])
    free = {path for path, key in schema.keys.items() if path.startswith("critic.own.") and key.is_free_form}
    assert free == {"critic.own.extra", "critic.own.maybe", "critic.own.inner_or_none"}
    assert "critic.own.inner.x" in schema.keys


def test_taken_paths_are_refused():
    with pytest.raises(ConfigError, match=r"backend 'b' mounts its settings at critic\.optim, which is taken"):
        Schema([mount(key="optim")])
    with pytest.raises(ConfigError, match="taken"):
        Schema([mount(), mount()])


def test_only_dataclasses_are_mounted():
    with pytest.raises(ConfigError, match="no dataclass"):
        Schema([mount(cls=int)])


def test_free_form_sections_enclose_what_is_below_them():
    schema = core_schema()
    assert schema.enclosing_free_form("data.apply_chat_template_kwargs.a.b") == "data.apply_chat_template_kwargs"
    assert schema.enclosing_free_form("data.seed") is None


def test_name_of_a_section_is_its_key_or_the_plugins_name():
    assert mount_key(mount().record) == "own"
    assert mount_key(BackendRecord(name="b", target="m:t", summary="s")) == "b"


def test_order_puts_sections_before_their_keys():
    order = core_schema().order
    assert order.index("data") < order.index("data.train_files") < order.index("actor_rollout_ref")
    assert len(order) == len(set(order))


def test_join():
    assert (join("", "a"), join("a", "b")) == ("a", "a.b")


def test_every_key_and_section_of_core_has_a_help_text():
    schema = core_schema()
    bare = []
    for path in schema.order:
        parent, _, name = path.rpartition(".")
        if not field_help(schema.sections[parent]).get(name):
            bare.append(path)
    assert bare == []
