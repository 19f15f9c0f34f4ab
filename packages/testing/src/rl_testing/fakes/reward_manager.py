"""A reward manager that starts early and does not wait for ever."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from rl_core.contracts.reward import RewardManager, RewardResult, parse_reward
from rl_dataproto import DataProto
from torch import Tensor

_Row = tuple[Any, ...]


class ThreadedRewardManager(RewardManager):
    """Scores every row in a thread of its own, from ``submit`` on; what is not there in time is missing.

    A row is known again by what it says, so ``collect`` finds what was submitted in any order.
    """

    def __init__(self, reward_function: Any, tokenizer: Any, config: Any) -> None:
        """Store the arguments; ``config.reward_model.timeout`` is how long ``collect`` waits for a row, in seconds."""
        self._reward_function = reward_function
        self._tokenizer = tokenizer
        self._timeout_s = float(config.reward_model.timeout)
        self._started: dict[_Row, list[Future[RewardResult]]] = {}

    def submit(self, rows: DataProto) -> None:
        """See ``RewardManager.submit``."""
        for number in range(len(rows)):
            key, arguments = self._read(rows, number)
            self._started.setdefault(key, []).append(self._start(arguments))

    def collect(self, batch: DataProto) -> list[RewardResult]:
        """See ``RewardManager.collect``."""
        futures = []
        for number in range(len(batch)):
            key, arguments = self._read(batch, number)
            ready = self._started.get(key)
            futures.append(ready.pop(0) if ready else self._start(arguments))
        deadline = time.monotonic() + self._timeout_s
        return [self._wait(future, deadline) for future in futures]

    def _wait(self, future: Future[RewardResult], deadline: float) -> RewardResult:
        try:
            return future.result(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            return RewardResult(None, error=f"no reward within {self._timeout_s:g} s (reward_model.timeout)")

    def _read(self, batch: DataProto, number: int) -> tuple[_Row, dict[str, Any]]:
        columns = batch.non_tensor_batch
        ids = tuple(_responses(batch)[number].tolist())
        extra_info = columns["extra_info"][number] if "extra_info" in columns else None
        reward_model = columns["reward_model"][number] or {}
        arguments = {
            "data_source": columns["data_source"][number],
            "solution_str": self._tokenizer.decode(ids, skip_special_tokens=True),
            "ground_truth": reward_model.get("ground_truth"),
            "extra_info": extra_info,
        }
        return (ids, *(repr(arguments[name]) for name in ("data_source", "ground_truth", "extra_info"))), arguments

    def _start(self, arguments: dict[str, Any]) -> Future[RewardResult]:
        future: Future[RewardResult] = Future()
        # A daemon: a function that hangs must not keep the process alive. Killing it takes a process of its own.
        threading.Thread(target=lambda: future.set_result(self._score(arguments)), daemon=True).start()
        return future

    def _score(self, arguments: dict[str, Any]) -> RewardResult:
        try:
            value = self._reward_function(**arguments)
            if inspect.isawaitable(value):
                value = asyncio.run(_awaited(value))
        except Exception as error:  # a function's failure is one missing reward
            return RewardResult(None, error=f"{type(error).__name__}: {error}")
        return parse_reward(value)


def _responses(batch: DataProto) -> Sequence[Tensor]:
    return () if batch.batch is None else batch.batch["responses"].unbind()


async def _awaited(value: Any) -> Any:
    return await value
