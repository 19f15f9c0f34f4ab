"""`docs/plugins.md` names every hook, record kind, field, status and variable as the code has them."""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
from typing import get_args

import pytest
from rl_core.plugins import HOOK_API, RECORD_CLASSES, Record, Registry, Selection, hookspecs
from rl_core.plugins.distributions import HOOK_NAMES, StatusWord
from rl_core.plugins.selection import ALLOW_VARIABLE, BLOCK_VARIABLE
from source_tree import ROOT

PAGE = (ROOT / "docs/plugins.md").read_text()
HEADINGS = set(re.findall(r"^### `(.+)`$", PAGE, re.MULTILINE))


def hook_heading(name: str) -> str:
    return f"{name}({', '.join(inspect.signature(getattr(hookspecs, name)).parameters)})"


def arguments(fields: list[dataclasses.Field]) -> str:
    return ", ".join(f.name if f.default is dataclasses.MISSING else f"{f.name}={f.default!r}" for f in fields)


def record_heading(cls: type[Record]) -> str:
    shared = {field.name for field in dataclasses.fields(Record)}
    own = [field for field in dataclasses.fields(cls) if field.name not in shared]
    return f"{cls.__name__}({', '.join(['...', arguments(own)] if own else ['...'])})"


def test_every_heading_is_a_hook_or_a_record_with_its_arguments():
    expected = {hook_heading(name) for name in HOOK_NAMES}
    expected |= {record_heading(cls) for cls in RECORD_CLASSES.values()}
    expected |= {f"Record({arguments(list(dataclasses.fields(Record)))})"}
    assert expected == HEADINGS


@pytest.mark.parametrize("kind", RECORD_CLASSES)
def test_each_record_is_under_its_kind(kind):
    start = PAGE.index(f"### `{record_heading(RECORD_CLASSES[kind])}`")
    assert re.match(rf"### .*\n\nKind `{kind}`[,. ]", PAGE[start:])


def test_the_shared_fields_have_a_row_each():
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)[: len(dataclasses.fields(Record))] == [
        field.name for field in dataclasses.fields(Record)
    ]


def test_statuses_variables_and_version():
    for word in get_args(StatusWord):
        assert re.search(rf"^\| `{word}(: reason)?` \|", PAGE, re.MULTILINE)
    assert ALLOW_VARIABLE in PAGE
    assert BLOCK_VARIABLE in PAGE
    assert f"now **{HOOK_API[0]}.{HOOK_API[1]}**" in PAGE


def test_the_links_within_the_page_lead_somewhere():
    anchors = {
        re.sub(r"[^a-z ]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^## (.+)$", PAGE, re.M)
    }
    assert set(re.findall(r"\(#([\w-]+)\)", PAGE)) <= anchors


def test_the_example_is_a_plugin():
    (source,) = [text for text in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "hookimpl" in text]
    module = types.ModuleType("rl_acme_plugin")
    exec(compile(source, "docs/plugins.md", "exec"), vars(module))
    registry = Registry(Selection())
    assert registry.register_distribution("rl-acme", "1.0", module).status.is_ok
    assert (registry.names("reward"), registry.names("advantage")) == (("acme/exact",), ("acme-mean",))
