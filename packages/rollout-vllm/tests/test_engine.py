"""What is refused before an engine starts, and what happens when it dies."""

import asyncio
from types import SimpleNamespace

import pytest
from rl_core.errors import ConfigError, RlError
from rl_rollout_vllm import engine as engine_module
from rl_rollout_vllm.engine import Engine, _require_head_size


def model(size):
    return SimpleNamespace(model="some/model", get_head_size=lambda: size)


def test_a_head_size_that_the_cpu_build_lacks():
    with pytest.raises(ConfigError, match=r"heads of model some/model have size 16, .* knows the sizes \[32, 64,"):
        _require_head_size(model(16))


def test_a_head_size_that_it_has():
    _require_head_size(model(64))


class Llm:
    """Dies in each call, and leaves the caller waiting, as vLLM does."""

    def __init__(self):
        self.errored = False
        self.vllm_config = SimpleNamespace(scheduler_config=SimpleNamespace(max_num_seqs=1))

    async def sleep(self, level):
        self.errored = True
        await asyncio.Future()

    async def wake_up(self, tags):
        return "awake"


@pytest.fixture
def engine(monkeypatch):
    monkeypatch.setattr(engine_module, "_LOOK_S", 0.01)
    return Engine(Llm(), SimpleNamespace(last_lines=lambda: ["device lost"]), 1.0)


def test_a_call_that_is_left_open_ends_when_the_engine_dies(engine):
    with pytest.raises(RlError, match=r"(?s)died before it could sleep \(level 2\).*device lost"):
        asyncio.run(engine.sleep(2))


def test_only_the_first_error_quotes_the_log(engine):
    with pytest.raises(RlError, match="device lost"):
        asyncio.run(engine.sleep(2))
    assert "device lost" not in str(engine.death("the vLLM engine died again"))


def test_a_call_that_is_answered_is_answered(engine):
    asyncio.run(engine.wake(["weights"]))
