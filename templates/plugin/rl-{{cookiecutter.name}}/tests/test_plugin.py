from __future__ import annotations

import pytest
from rl_core.plugins import get_registry
from rl_{{cookiecutter.name}}.plugin import rl_plugins


@pytest.mark.parametrize("record", rl_plugins(), ids=lambda record: record.kind)
def test_every_part_is_found_by_name_and_loads(record):
    # Through the entry point, so the distribution must be installed: pip install -e .
    assert get_registry().entry(record.kind, record.name).distribution.name == "rl-{{cookiecutter.name}}"
    assert callable(get_registry().load(record.kind, record.name))
