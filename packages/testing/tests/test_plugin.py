from __future__ import annotations

import pytest
from rl_testing.plugin import rl_plugins

RECORDS = tuple(rl_plugins())


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: f"{record.kind}-{record.name}")
def test_every_part_loads(registry_with_fakes, record):
    assert registry_with_fakes.record(record.kind, record.name) == record
    assert registry_with_fakes.load(record.kind, record.name) is not None
    if record.config is not None:
        assert registry_with_fakes.load_config(record.kind, record.name)() is not None


def test_the_fakes_come_through_the_door(registry_with_fakes):
    assert registry_with_fakes.names("backend") == ("fake", "fake-pipeline")
    assert registry_with_fakes.names("rollout") == ("echo", "fake")
    assert set(registry_with_fakes.names("reward")) == {"abstain", "brevity", "count_letter", "exact_match"}
    assert registry_with_fakes.load_tokenizer("fake")("tiny").vocab_size == 48


@pytest.mark.parametrize("backend", ["fake", "fake-pipeline"])
@pytest.mark.parametrize("rollout", ["fake", "echo"])
def test_any_two_engines_pair(registry_with_fakes, backend, rollout):
    assert registry_with_fakes.pairing(backend, rollout).record.name == "generic"
