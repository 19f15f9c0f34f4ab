from __future__ import annotations

import pickle
from dataclasses import dataclass, field, fields, replace

import pytest
from rl_core.config.node import MISSING, Node, choice, free_form, number, plugin, plugins
from rl_core.errors import ConfigError


@dataclass
class Inner(Node):
    rate: float = number(0.5, ge=0, le=1)
    anything: dict = free_form()


@dataclass
class Outer(Node):
    mode: str = choice("a", "a", "b")
    engine: str = plugin("backend", MISSING)
    names: list = plugins("tracker", "console")
    inner: Inner = field(default_factory=Inner)


def test_limits_travel_in_the_metadata():
    metadata = {field.name: dict(field.metadata) for field in [*fields(Outer), *fields(Inner)]}
    assert metadata["rate"] == {"ge": 0, "le": 1}
    assert metadata["anything"] == {"free_form": True}
    assert metadata["mode"] == {"choices": ("a", "b")}
    assert metadata["engine"]["kind"] == "backend"
    assert metadata["names"]["kind"] == "tracker"


def test_lists_are_not_shared():
    assert Outer().names is not Outer().names


def test_a_section_can_be_set_until_it_is_frozen():
    section = Outer()
    section.inner.rate = 0.25
    section.freeze()
    with pytest.raises(ConfigError, match=r"Inner\.rate was to be set to 1\.0"):
        section.inner.rate = 1.0
    with pytest.raises(ConfigError, match="read-only"):
        section.mode = "b"
    assert section.inner.rate == 0.25


def test_a_copy_of_a_frozen_section_can_differ():
    section = Inner()
    section.freeze()
    other = replace(section, rate=1.0)
    other.rate = 0.75
    assert (section.rate, other.rate) == (0.5, 0.75)


def test_frozen_sections_are_equal_to_open_ones():
    section = Inner()
    section.freeze()
    assert section == Inner()
    assert pickle.loads(pickle.dumps(section)) == section
