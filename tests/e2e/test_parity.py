"""``rl parity`` and the report of a run on the fakes, with mistakes planted in the generator."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from fakes_training import overrides, train, write_prompts
from rl_core.cli.main import main
from rl_core.errors import ConfigError, WeightSyncError
from rl_core.trainer.main_parity import main as parity
from rl_core.trainer.main_ppo import main as run_ppo
from rl_testing.fakes import sliced_rollout
from rl_testing.fakes.sliced_model import SlicedModel
from rl_testing.fakes.sliced_rollout import SlicedRollout

KEYS = [
    "actor_rollout_ref.model.path=tiny",
    "actor_rollout_ref.actor.strategy=fake",
    "actor_rollout_ref.rollout.name=fake",
    "actor_rollout_ref.rollout.ignore_eos=true",
    "trainer.runtime=local",
]
GRPO = "algorithm.adv_estimator=grpo"


@pytest.fixture
def draws_from(monkeypatch):
    """Let the generator draw from what a function of (logits, sampling) gives as logits and sampling instead."""

    def draws_from(change):
        log_distribution = sliced_rollout.log_distribution

        def changed(logits, sampling, forbidden=()):
            return log_distribution(*change(logits, sampling), forbidden)

        monkeypatch.setattr(sliced_rollout, "log_distribution", changed)

    return draws_from


@pytest.fixture
def output(monkeypatch):
    """Let the generator answer with what a function of (request, output) makes of its output."""

    def output(change):
        generate = SlicedRollout.generate

        async def generated(self, request):
            return change(request, await generate(self, request))

        monkeypatch.setattr(SlicedRollout, "generate", generated)

    return output


def said(capsys):
    """The name of the cause, and everything."""
    text = " ".join(capsys.readouterr().out.split())
    return text.split("cause: ")[1].split(":")[0].split(" (")[0], text


@pytest.mark.parametrize("workers", [1, 2])
def test_engines_that_agree(workers, installed_fakes, capsys):
    assert parity([*KEYS, f"trainer.n_gpus_per_node={workers}", "--prompts", "5", "--tokens", "20"]) == 0
    cause, text = said(capsys)
    assert cause == "none"
    assert "responses 5 in" in text
    assert "tokens 100 log-prob gap" in text
    assert "trainer again, rows alone 80" in text
    assert "generator again, rows alone 80 0 0" in text
    assert "weights of version 0 100" in text
    assert "pass: mean gap" in text


def test_another_temperature(draws_from, installed_fakes, capsys):
    draws_from(lambda logits, sampling: (logits, replace(sampling, temperature=0.6)))
    assert parity(KEYS) == 1
    cause, text = said(capsys)
    assert cause == "temperature"
    found = float(text.split("are those at temperature ")[1].split(";")[0])
    assert found == pytest.approx(0.6, rel=0.05)
    assert "largest gaps: log-prob of the generator, of the trainer" in text
    assert "FAIL: mean gap" in text
    assert "(trainer.parity.first_sync_tolerance)" in text


def test_a_filter_that_nobody_asked_for(draws_from, installed_fakes, capsys):
    draws_from(lambda logits, sampling: (logits, replace(sampling, top_p=0.7)))
    assert parity(KEYS) == 1
    assert said(capsys)[0] == "smaller vocabulary"


def test_a_limit_of_ones_own(installed_fakes, capsys):
    filtered = [*KEYS, "actor_rollout_ref.rollout.top_p=0.95"]
    assert parity([*filtered, "--limit", "0.06"]) == 0
    assert said(capsys)[0] == "filtered sampling"
    assert parity([*filtered, "--limit", "0.01"]) == 1
    assert "limit 0.01 (--limit)" in capsys.readouterr().out


def test_logits_in_bfloat16(draws_from, installed_fakes, capsys):
    draws_from(lambda logits, sampling: (torch.tensor(logits).bfloat16().double().numpy(), sampling))
    assert parity([*KEYS, "--limit", "0.05"]) == 0
    assert said(capsys)[0] == "precision"


def test_log_probs_beside_their_tokens(output, installed_fakes, capsys):
    output(lambda request, made: replace(made, log_probs=(*made.log_probs[1:], made.log_probs[0])))
    assert parity([*KEYS, "--limit", "0.01"]) == 1
    assert said(capsys)[0] == "shifted by one"


def test_stale_weights_for_a_part_of_the_requests(monkeypatch, installed_fakes, capsys):
    """As when one replica of four was left out of the hand-over."""
    advance, logits = SlicedRollout.advance, SlicedModel.logits
    stale = {"is_on": False}

    def advanced(self, item):
        stale["is_on"] = int(item.request.request_id.split("-")[1]) % 4 == 1
        return advance(self, item)

    def other(self, state):
        found = logits(self, state)
        return found + 2 * np.sin(np.arange(len(found)) * (3 + state.length)) if stale["is_on"] else found

    monkeypatch.setattr(SlicedRollout, "advance", advanced)
    monkeypatch.setattr(SlicedModel, "logits", other)
    assert parity(KEYS) == 1
    cause, text = said(capsys)
    assert cause == "stale weights in part"
    assert "4 of 16 responses have the gap" in text
    assert "rows 1, 5, 9, 13" in text


def test_a_past_that_the_generator_loses(monkeypatch, installed_fakes, capsys):
    """As with a cache whose old blocks are overwritten: right near the prompt, wrong far from it."""
    logits = SlicedModel.logits

    def forgotten(self, state):
        found = logits(self, state)
        return found + 2 * np.sin(np.arange(len(found)) * (3 + state.length)) * (state.length > 100)

    monkeypatch.setattr(SlicedModel, "logits", forgotten)
    assert parity([*KEYS, "--limit", "0.001"]) == 1
    assert said(capsys)[0] == "position"


def test_a_checkpoint_and_the_prompts_of_its_run(tmp_path, installed_fakes, capsys):
    write_prompts(tmp_path / "train.jsonl")
    assert run_ppo(overrides(tmp_path, GRPO, "trainer.save_freq=1")) == 0
    capsys.readouterr()
    assert main(["parity", str(tmp_path / "run"), "--prompts", "6"]) == 0
    text = capsys.readouterr().out
    assert f"prompts    {tmp_path}/train.jsonl" in text
    assert "responses  6 in" in text
    assert "weights of version 4" in text  # two optimizer steps in each of two steps


def test_a_generator_without_log_probs(installed_fakes):
    with pytest.raises(ConfigError, match="the generator reports no log-probs"):
        parity([*KEYS[:2], "actor_rollout_ref.rollout.name=echo", KEYS[-1]])


def test_a_run_that_is_stopped_says_why(tmp_path, draws_from, installed_fakes):
    draws_from(lambda logits, sampling: (logits, replace(sampling, temperature=0.5)))
    keys = [GRPO, "actor_rollout_ref.actor.calculate_entropy=true"]
    with pytest.raises(WeightSyncError, match=r"first_sync_tolerance is 0\.1\.\n  cause: temperature") as caught:
        train(tmp_path, *keys)
    found = float(" ".join(str(caught.value).split()).split("at temperature ")[1].split(";")[0])
    assert found == pytest.approx(0.5, rel=0.2)
    (line,) = (tmp_path / "run" / "parity.jsonl").read_text().splitlines()
    record = json.loads(line)
    assert record["cause"]["name"] == "temperature"
    assert len(record["outliers"]) == 5
    assert all(item["token"] and item["uid"] for item in record["outliers"])


def test_a_run_reports_its_steps(tmp_path, installed_fakes, capsys):
    train(tmp_path, GRPO, "trainer.parity.outliers=2")
    records = [json.loads(line) for line in (tmp_path / "run" / "parity.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [1, 2]
    assert {record["cause"]["name"] for record in records} == {"none"}
    assert {len(record["outliers"]) for record in records} == {2}
    assert "cause:" not in capsys.readouterr().out
