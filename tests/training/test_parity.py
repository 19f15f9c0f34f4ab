"""``rl parity`` on a real model with the real engines: they agree, and what is planted between them is found."""

from dataclasses import replace

import pytest
import torch
from rl_core.trainer.main_parity import main as parity
from rl_rollout_hf import sampling
from rl_rollout_hf.weights import ModelSink
from tiny_runs import arguments, write_inputs

pytestmark = pytest.mark.heavy


@pytest.fixture
def check(model, tmp_path, capsys):
    """Exit status, cause and output of a check with a run's own arguments."""
    write_inputs(tmp_path)

    def check(*more):
        given = arguments(model, tmp_path, "data.max_response_length=32")
        status = parity([*given, *more, "--tokens", "32"])
        text = " ".join(capsys.readouterr().out.split())
        return status, text.split("cause: ")[1].split(":")[0].split(" (")[0], text

    return check


def test_the_engines_agree_in_float32(check, tmp_path):
    status, cause, text = check()
    assert (status, cause) == (0, "none")
    assert f"prompts {tmp_path}/train.jsonl" in text
    assert float(text.split("log-prob gap mean ")[1].split(",")[0]) < 1e-5


def test_a_model_folder_alone(model, capsys):
    assert parity([str(model), "actor_rollout_ref.rollout.name=hf", "trainer.runtime=local", "--prompts", "8"]) == 0
    assert "prompts    built in" in capsys.readouterr().out


def test_bfloat16_in_the_generator_alone(check):
    status, cause, text = check("actor_rollout_ref.rollout.hf.dtype=bfloat16")
    assert (status, cause) == (0, "precision")
    assert 1e-4 < float(text.split("log-prob gap mean ")[1].split(",")[0]) < 0.05


def test_a_generator_at_another_temperature(check, monkeypatch):
    draw = sampling._draw

    def hotter(logits, rows, *rest):
        return draw(logits, replace(rows, temperature=rows.temperature * 1.4), *rest)

    monkeypatch.setattr(sampling, "_draw", hotter)
    status, cause, text = check("actor_rollout_ref.rollout.temperature=0.5", "--limit", "0.01")
    assert (status, cause) == (1, "temperature")
    assert float(text.split("those at temperature ")[1].split(";")[0]) == pytest.approx(0.7, rel=0.05)


def test_raw_log_probs(check):
    raw = ["actor_rollout_ref.rollout.logprobs_mode=raw_logprobs", "actor_rollout_ref.rollout.temperature=0.5"]
    status, cause, text = check(*raw, "--limit", "0.01")
    assert (status, cause) == (1, "temperature")
    assert "reports log-probs of the raw logits" in text


def test_a_tensor_that_did_not_arrive(check, monkeypatch):
    end = ModelSink.end

    async def spoiled(self, digest):
        await end(self, digest)
        name = next(name for name in self._weights.tensors if name.endswith("layers.0.mlp.down_proj.weight"))
        with torch.no_grad():
            self._weights.tensors[name].normal_(std=1.0, generator=torch.Generator().manual_seed(0))

    monkeypatch.setattr(ModelSink, "end", spoiled)
    status, cause, text = check()
    assert (status, cause) == (1, "other weights")
    assert "log-probs correlate at" in text
