from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rl_core.config.nested import ABSENT, get_path, leaves, merged, pop_path, set_path

NAMES = st.text("abc", min_size=1, max_size=2)
TREES = st.recursive(
    st.integers(), lambda children: st.dictionaries(NAMES, children, min_size=1, max_size=3), max_leaves=8
).filter(lambda tree: isinstance(tree, dict))


def test_absent_is_not_null():
    tree = {"a": {"b": None}}
    assert get_path(tree, "a.b") is None
    assert get_path(tree, "a.c") is ABSENT
    assert get_path(tree, "a.b.c") is ABSENT


def test_pop_takes_empty_sections_along():
    tree = {"a": {"b": {"c": 1}}, "d": 2}
    assert pop_path(tree, "a.b.c") == 1
    assert tree == {"d": 2}
    assert pop_path(tree, "d.x") is ABSENT
    assert pop_path(tree, "z") is ABSENT


def test_set_replaces_a_value_by_a_section():
    tree = {"a": 1}
    set_path(tree, "a.b", 2)
    assert tree == {"a": {"b": 2}}


def test_merge_prefers_the_upper_tree_and_changes_neither():
    below, above = {"a": {"x": 1, "y": 2}, "b": 3}, {"a": {"x": 9}, "b": {"c": 4}}
    assert merged(below, above) == {"a": {"x": 9, "y": 2}, "b": {"c": 4}}
    assert below == {"a": {"x": 1, "y": 2}, "b": 3}


@given(TREES)
def test_leaves_rebuild_the_tree(tree):
    rebuilt = {}
    for path, value in leaves(tree):
        set_path(rebuilt, path, value)
    assert rebuilt == tree
