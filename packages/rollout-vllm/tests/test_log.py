from __future__ import annotations

import json
import logging.config

import pytest
from rl_rollout_vllm.log import EngineLog, explained

RECORDS = """\
INFO 12-01 10:00:00 [core.py:1] Initializing
ERROR 12-01 10:00:01 [core.py:2] EngineCore failed to start.
Traceback (most recent call last):
  File "x.py", line 1, in f
ValueError: No available memory for the cache blocks.
ERROR 12-01 10:00:01 [dump.py:3] Dumping input data for V1 LLM engine
with everything in it
ERROR 12-01 10:00:02 [async_llm.py:4] AsyncLLM output_handler failed.
Traceback (most recent call last):
EngineDeadError
"""


@pytest.fixture
def log():
    made = EngineLog()
    yield made
    made.close()


def test_nothing_was_said(log):
    assert log.last_lines() == []


def test_the_cause_is_kept_and_its_echoes_are_not(log):
    log.path.write_text(RECORDS)
    assert log.last_lines() == [
        "EngineCore failed to start.",
        "Traceback (most recent call last):",
        '  File "x.py", line 1, in f',
        "ValueError: No available memory for the cache blocks.",
    ]
    assert log.last_lines(1) == ["ValueError: No available memory for the cache blocks."]


def test_without_an_error_the_last_words_are_kept(log):
    log.path.write_text("INFO 12-01 10:00:00 [core.py:1] Loading\nINFO 12-01 10:00:00 [core.py:1] Loaded\n")
    assert log.last_lines() == ["Loading", "Loaded"]


def test_memory_is_named_with_the_key_to_turn(log):
    log.path.write_text(RECORDS)
    text = explained("it did not start", None, log)
    assert text.startswith("it did not start. There is too little memory")
    assert "gpu_memory_utilization" in text
    assert "No available memory for the cache blocks" in text


def test_an_error_without_words_of_vllm_speaks_for_itself(log):
    assert "KeyError: 'x'" in explained("it failed", KeyError("x"), log)
    assert "memory" not in explained("it failed", KeyError("x"), log)


def test_the_logging_that_vllm_gets_writes_to_the_file(log):
    config = json.loads(log._config.read_text())
    config["loggers"] = {"rl_test_vllm": config["loggers"]["vllm"]}
    logging.config.dictConfig(config)
    logging.getLogger("rl_test_vllm.child").error("it broke")
    for handler in logging.getLogger("rl_test_vllm").handlers:
        handler.close()
    assert log.last_lines() == ["it broke"]


@pytest.mark.parametrize("setting", ["VLLM_LOGGING_CONFIG_PATH=mine.json", "VLLM_CONFIGURE_LOGGING=0"])
def test_logging_that_a_user_has_set_up_stays(log, monkeypatch, setting):
    assert "VLLM_LOGGING_CONFIG_PATH" in log.variables()
    monkeypatch.setenv(*setting.split("="))
    assert "VLLM_LOGGING_CONFIG_PATH" not in log.variables()


def test_sockets_go_with_the_files_unless_a_user_has_a_place_for_them(log, monkeypatch):
    monkeypatch.delenv("VLLM_RPC_BASE_PATH", raising=False)
    assert log.variables()["VLLM_RPC_BASE_PATH"] == str(log.path.parent)
    monkeypatch.setenv("VLLM_RPC_BASE_PATH", "/mine")
    assert "VLLM_RPC_BASE_PATH" not in log.variables()


def test_close_removes_the_files(log):
    log.path.write_text("x")
    log.close()
    assert not log.path.exists()
