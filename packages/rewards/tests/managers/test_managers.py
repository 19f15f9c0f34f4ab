import asyncio
import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
from rl_core.errors import ConfigError
from rl_rewards.managers.batch import BatchRewardManager
from rl_rewards.managers.prime import PrimeRewardManager
from rl_rewards.managers.rate_limited import RateLimitedRewardManager
from rl_rewards.managers.remote import RemoteRewardManager
from rl_testing.contracts.reward_manager import RewardManagerDeadlineContract, rows
from rl_testing.fakes.tokenizer import TinyTokenizer

pytestmark = pytest.mark.heavy


class TestPrime(RewardManagerDeadlineContract):
    manager_class = PrimeRewardManager


class TestRateLimited(RewardManagerDeadlineContract):
    manager_class = RateLimitedRewardManager


def config(reward_kwargs=None, **settings):
    base = {"timeout": 20.0, "num_workers": 2, "memory_limit_mb": None, "max_concurrent": None, "max_rpm": None}
    base |= {"max_tpm": None, "estimated_tokens_per_request": 10, "reward_kwargs": reward_kwargs or {}}
    return SimpleNamespace(
        reward_model=SimpleNamespace(**(base | settings)), trainer=SimpleNamespace(max_failed_reward_fraction=1.0)
    )


@pytest.fixture
def manage():
    made = []

    def make(cls, function, **keys):
        made.append(cls(function, TinyTokenizer(), config(**keys)))
        return made[-1]

    yield make
    for manager in made:
        manager.close()


@pytest.mark.parametrize(("size", "calls"), [(None, [5] * 5), (2, [2, 2, 2, 2, 1])])
def test_batch_calls_once_for_many(manage, size, calls):
    kwargs = {} if size is None else {"batch_size": size}
    manager = manage(
        BatchRewardManager, lambda solution_strs: [len(solution_strs)] * len(solution_strs), reward_kwargs=kwargs
    )
    assert [result.score for result in manager.collect(rows())] == calls


def test_batch_refuses_a_function_of_single_rows_and_unknown_arguments(manage):
    with pytest.raises(ConfigError, match="whose function takes lists"):
        manage(BatchRewardManager, lambda solution_str: 0.0)
    with pytest.raises(ConfigError, match="reward_kwargs has batch, which reward manager 'batch' does not take"):
        manage(BatchRewardManager, lambda solution_strs: [], reward_kwargs={"batch": 2})
    with pytest.raises(ConfigError, match="batch_size is 0"):
        manage(BatchRewardManager, lambda solution_strs: [], reward_kwargs={"batch_size": 0})


def test_rate_limited_keeps_to_its_number_over_all_processes(manage, tmp_path):
    def note(solution_str):
        (tmp_path / f"{solution_str}.now").touch()
        running = len(list(tmp_path.glob("*.now")))
        time.sleep(0.1)
        (tmp_path / f"{solution_str}.now").unlink()
        return running

    manager = manage(RateLimitedRewardManager, note, max_concurrent=1, num_workers=4)
    assert [result.score for result in manager.collect(rows())] == [1.0] * 5


def test_a_process_that_dies_gives_back_what_its_calls_count_for(manage):
    async def fail(solution_str):
        await asyncio.sleep(0.05)
        if solution_str == "three":
            os._exit(1)
        return 1.0

    manager = manage(RateLimitedRewardManager, fail, max_concurrent=2, num_workers=1)
    assert [result.score for result in manager.collect(rows())] == [1.0, 1.0, None, 1.0, 1.0]


@pytest.fixture
def service():
    """Scores by length; answers 503 to the first request, and notes what it was sent."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            seen.append((self.headers.get("authorization"), body))
            score = lambda sample: {"score": len(sample["solution_str"]), "acc": 1}  # noqa: E731
            answer = {"rewards": [score(sample) for sample in body["samples"]]} if "samples" in body else score(body)
            text = json.dumps(answer).encode()
            self.send_response(503 if len(seen) == 1 else 200)
            self.send_header("retry-after", "0")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/score", seen
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("size", [None, 3])
def test_remote_asks_a_service_again_where_it_was_busy(manage, service, size, monkeypatch):
    monkeypatch.setenv("MY_JUDGE_KEY", "secret")
    url, seen = service
    kwargs = {"url": url, "batch_size": size, "api_key_env": "MY_JUDGE_KEY"}
    results = manage(RemoteRewardManager, None, reward_kwargs=kwargs).collect(rows())
    assert [(result.score, result.extra) for result in results] == [(n, {"acc": 1}) for n in (3.0, 3.0, 5.0, 4.0, 4.0)]
    assert {key for key, _ in seen} == {"Bearer secret"}
    assert len(seen) == (6 if size is None else 3)


def test_remote_says_what_went_wrong_without_the_key(manage, service, monkeypatch):
    monkeypatch.setenv("MY_JUDGE_KEY", "secret")
    kwargs = {"url": service[0], "retries": 0, "api_key_env": "MY_JUDGE_KEY"}
    error = manage(RemoteRewardManager, None, reward_kwargs=kwargs).collect(rows(["one"]))[0].error
    assert "/score did not answer: status 503" in error
    assert "secret" not in error
    with pytest.raises(ConfigError, match=r"reward_kwargs\.url is None"):
        manage(RemoteRewardManager, None)
