"""Predicted states against those of real engines."""

import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import pytest
from rl_backend_deepspeed.config import DeepSpeedConfig
from rl_backend_deepspeed.engine import DeepSpeedEngine
from rl_backend_deepspeed.memory import predict_memory
from rl_core.config.memory_question import TrainingMemoryQuestion
from rl_core.contracts.engine import EngineConfig, EngineRole
from rl_testing.contracts import engine_calls as calls
from rl_testing.contracts.engine_batch import as_batch, make_rows, num_tokens
from rl_testing.contracts.engine_losses import PolicyLoss
from rl_testing.contracts.engine_suite import ADAM
from rl_testing.contracts.processes import ProcessRanks
from rl_testing.contracts.ranks import run_on_all
from rl_testing.models import save_tiny_model

ROWS = make_rows(64)


def sizes(engine):
    return {state.value: size for state, size in engine.state_bytes().items()}


@pytest.mark.heavy
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_states_are_those_of_two_workers_within_a_few_percent(tmp_path, stage):
    section = SimpleNamespace(path=str(save_tiny_model(tmp_path, vocab_size=64, with_tokenizer=False)))
    plugin = DeepSpeedConfig(zero_stage=stage, reduce_bucket_size=5000)
    config = EngineConfig(optim=ADAM, plugin=plugin)
    group = ProcessRanks(2, partial(DeepSpeedEngine, EngineRole.POLICY, section, config), dispose=calls.close)
    run_on_all(group, calls.initialize)
    loss = PolicyLoss(num_tokens(ROWS))
    run_on_all(group, partial(calls.train, batches=[as_batch(ROWS)], loss_fn=loss))
    run_on_all(group, partial(calls.accumulate, batch=as_batch(ROWS), loss_fn=loss))
    found = run_on_all(group, partial(calls.measure, probe=sizes))[0]
    group.close()
    question = TrainingMemoryQuestion(
        model=section,
        plugin=plugin,
        role="policy",
        optim=ADAM,
        num_workers=2,
        is_gpu=False,
        update_tokens=100,
        forward_tokens=100,
    )
    expected = predict_memory(question).states
    assert found["parameters"] == pytest.approx(expected["parameters"], rel=0.05)
    assert found["optimizer"] == pytest.approx(expected["optimizer"], rel=0.05)
    # In stage 2 a tensor on the border of two parts is kept whole by both: here, one of few.
    assert expected["gradients"] * 0.95 <= found["gradients"] <= expected["gradients"] * (2 if stage == 2 else 1.05)


def test_predicting_loads_no_torch():
    code = "import sys; import rl_backend_deepspeed.memory; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
