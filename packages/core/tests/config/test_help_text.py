from __future__ import annotations

from dataclasses import dataclass

import pytest
from rl_core.config.help_text import field_help
from rl_core.errors import ConfigError


@dataclass
class Parent:
    a: int = 1
    """About a."""

    b: int = 2


@dataclass
class Child(Parent):
    """Class text, not a field's."""

    b: int = 3
    """About b,
    over two lines."""
    c: int = 4


def test_texts_are_read_from_below_the_field_and_inherited():
    assert field_help(Child) == {"a": "About a.", "b": "About b, over two lines."}
    assert field_help(Parent) == {"a": "About a."}


def test_a_class_without_source_is_named():
    made = dataclass(type("Made", (), {"__annotations__": {"x": int}, "__module__": __name__}))
    with pytest.raises(ConfigError, match="Made"):
        field_help(made)
