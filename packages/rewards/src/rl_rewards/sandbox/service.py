"""Client of a SandboxFusion service: the same question, asked of other machines.

Source: the service's ``/run_code`` interface (github.com/bytedance/SandboxFusion): a request has ``code``, ``language``,
``stdin``, ``compile_timeout``, ``run_timeout``, ``memory_limit_MB``; the answer ``status``, ``message``, ``compile_result``
and ``run_result``, each of these with ``status``, ``return_code``, ``execution_time``, ``stdout`` and ``stderr``.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any, Self

from rl_rewards.sandbox.errors import SandboxError
from rl_rewards.sandbox.results import Limits, SandboxResult, Status

COMPILE_LIMIT_S = 30.0
NETWORK_GRACE_S = 20.0
"""Seconds beyond a run's own limits for the way there, a queue and the way back."""
MAX_ANSWER_BYTES = 64 << 20
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0

_slots: dict[str, threading.BoundedSemaphore] = {}
_slots_lock = threading.Lock()


class _RetryableError(Exception):
    """A failure that another try may not meet."""


@dataclass(frozen=True, kw_only=True)
class SandboxService:
    """One program on a service, as often as needed; with the methods of ``Sandbox``.

    Attributes:
        url: of the service, with or without ``/run_code``.
        code: text of the program.
        limits: ``wall_s`` and ``memory_mb`` go to the service, the others are the service's own.
        language: as the service names it.
        max_concurrent: requests to this url at a time from this process.
        patience_s: seconds for tries that follow a failure.
    """

    url: str
    code: str
    limits: Limits
    language: str = "python"
    max_concurrent: int = 64
    patience_s: float = 60.0

    def __post_init__(self) -> None:
        """Check the address.

        Raises:
            SandboxError: it is none.
        """
        if urllib.parse.urlsplit(self.url).scheme not in ("http", "https"):
            msg = f"reward_model.sandbox_fusion.url is {self.url!r}; it must begin with http:// or https://"
            raise SandboxError(msg)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing to end: every run is one request."""

    def run(self, stdin: str = "", *, wall_s: float | None = None) -> SandboxResult:
        """Run the program once.

        Args:
            stdin: what it can read.
            wall_s: a shorter deadline than that of the limits.

        Raises:
            SandboxError: the service gave no answer, or could not run it; nothing is known about the program.
        """
        wall_s = self.limits.wall_s if wall_s is None else min(wall_s, self.limits.wall_s)
        question = {
            "code": self.code,
            "language": self.language,
            "stdin": stdin,
            "compile_timeout": COMPILE_LIMIT_S,
            "run_timeout": wall_s,
            "memory_limit_MB": self.limits.memory_mb,
        }
        timeout_s = wall_s + COMPILE_LIMIT_S + NETWORK_GRACE_S
        last_try = time.monotonic() + self.patience_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                with _slot(self.url, self.max_concurrent):
                    return _result(_post(self._address(), question, timeout_s))
            except _RetryableError as error:
                # Spread over time, so that all who were refused do not come back together.
                wait_s = pause_s * random.uniform(0.5, 1.5)
                if time.monotonic() + wait_s > last_try:
                    msg = f"the sandbox service at {self.url} failed for {self.patience_s:.0f} s: {error}"
                    raise SandboxError(msg) from error
                time.sleep(wait_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _address(self) -> str:
        base = self.url.rstrip("/")
        return base if base.endswith("/run_code") else f"{base}/run_code"


def _slot(url: str, number: int) -> threading.BoundedSemaphore:
    with _slots_lock:
        return _slots.setdefault(url, threading.BoundedSemaphore(number))


def _post(address: str, question: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    body = json.dumps(question).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as response:
            answer = json.loads(response.read(MAX_ANSWER_BYTES))
    except urllib.error.HTTPError as error:
        text = error.read(300).decode(errors="replace")
        if error.code == 429 or error.code >= 500:
            msg = f"HTTP {error.code}: {text}"
            raise _RetryableError(msg) from error
        msg = f"the sandbox service at {address} refused the request: HTTP {error.code}: {text}"
        raise SandboxError(msg) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        msg = f"{type(error).__name__}: {error}"
        raise _RetryableError(msg) from error
    if not isinstance(answer, dict) or answer.get("status") not in ("Success", "Failed"):
        told = answer.get("message") or answer.get("status") if isinstance(answer, dict) else answer
        msg = f"it answered {str(told)[:300]!r}"
        raise _RetryableError(msg)
    return answer


def _result(answer: dict[str, Any]) -> SandboxResult:
    ran: dict[str, Any] = answer.get("run_result") or answer.get("compile_result") or {}
    stderr = ran.get("stderr") or ""
    status: Status = "ok"
    if ran.get("status") == "TimeLimitExceeded":
        status = "timeout"
    elif answer["status"] != "Success":
        last_line = stderr.rstrip().rpartition("\n")[2]
        status = "memory" if last_line.startswith("MemoryError") else "error"
    return SandboxResult(
        status=status,
        stdout=ran.get("stdout") or "",
        stderr=stderr,
        exit_code=ran.get("return_code"),
        seconds=ran.get("execution_time") or 0.0,
    )
