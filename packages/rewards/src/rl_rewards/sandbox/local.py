"""A sandbox on this machine: a launcher process, a supervisor inside, and a fresh program for each run.

Nothing here needs the main thread, a signal or a function between fork and exec, so it works in any thread of any process.
"""

from __future__ import annotations

import ast
import marshal
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from rl_core.scoring.guard import MARK

import rl_rewards
from rl_rewards.confine import frames
from rl_rewards.sandbox.errors import SandboxError
from rl_rewards.sandbox.languages import ENVIRONMENT, Language, find, folders_of, interpreter
from rl_rewards.sandbox.results import Limits, SandboxResult

START_LIMIT_S = 30.0
"""For a machine under load; a start takes 50 ms."""
GRACE_S = 10.0
"""Seconds that the supervisor may take beyond a run's ``wall_s`` to end it and to answer."""


class Sandbox:
    """Runs one program, as often as needed; a context manager. Every run starts afresh, with an empty scratch folder.

    A sandbox belongs to one thread at a time.
    """

    def __init__(
        self,
        code: str,
        *,
        limits: Limits,
        language: str | Language = "python",
        layers: Mapping[str, bool] | None = None,
    ) -> None:
        """Start it.

        Args:
            code: text of the program.
            limits: for each run.
            language: a name in ``LANGUAGES``, or a language.
            layers: ``namespaces``, ``landlock`` and ``seccomp``: which of them must hold; all by default. Use
                ``SandboxSupport.layers`` of ``probe``.

        Raises:
            SandboxError: it cannot be made as asked.
        """
        if sys.platform != "linux":
            msg = f"the sandbox needs Linux, this is {sys.platform}; reward_model.sandbox_fusion.url names a service instead"
            raise SandboxError(msg)
        self._limits = limits
        self._layers = {"namespaces": True, "landlock": True, "seccomp": True} | dict(layers or {})
        self._language = find(language) if isinstance(language, str) else language
        self._has_started = False
        self._folder = None if self._layers["namespaces"] else tempfile.mkdtemp(prefix="rl-sandbox-")
        self._process = subprocess.Popen(
            _command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # None of this process's secrets; the mark, so that a pool that is ended finds the launcher too.
            env={name: os.environ[name] for name in (MARK,) if name in os.environ},
            cwd="/",
            start_new_session=True,
        )
        try:
            self.counts_memory: bool = self._ask(marshal.dumps(self._start_message()), _encoded(code), START_LIMIT_S)[
                0
            ]["counts_memory"]
        except BaseException:
            self.close()
            raise

    def run(self, stdin: str = "", *, wall_s: float | None = None) -> SandboxResult:
        """Run the program once, and end everything it has started.

        Args:
            stdin: what it can read.
            wall_s: a shorter deadline than that of the limits.

        Raises:
            SandboxError: it could not be run; the program is not to blame.
        """
        wall_s = self._limits.wall_s if wall_s is None else min(wall_s, self._limits.wall_s)
        try:
            answer, (stdout, stderr) = self._ask(str(wall_s).encode(), _encoded(stdin), wall_s + GRACE_S)
        except (frames.PeerGoneError, BrokenPipeError):
            # What code does to its supervisor must not turn a wrong answer into a missing reward.
            return SandboxResult("killed", "", "the supervisor has ended")
        return SandboxResult(**answer, stdout=stdout.decode(errors="replace"), stderr=stderr.decode(errors="replace"))

    def close(self) -> None:
        """End it; when this returns, none of its processes is left."""
        assert self._process.stdin and self._process.stdout and self._process.stderr
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        pidfd = os.pidfd_open(self._process.pid)  # Popen.wait with a timeout looks only every 50 ms
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        if not poll.poll(GRACE_S * 1000):
            self._process.kill()
        os.close(pidfd)
        self._process.wait()
        self._process.stdout.close()
        self._process.stderr.close()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start_message(self) -> dict[str, Any]:
        limits = self._limits
        return {
            **self._layers,
            "scratch": self._folder,
            "file_name": self._language.file_name,
            "command": self._language.command,
            "folders": folders_of(self._language),
            "environment": {**ENVIRONMENT, **self._language.environment},
            "bounds": {
                name: getattr(limits, name) for name in ("cpu_s", "memory_mb", "file_mb", "processes", "open_files")
            },
            "scratch_mb": limits.scratch_mb,
            "output_bytes": limits.output_kb * 1024,
        }

    def _ask(self, header: bytes, blob: bytes, timeout_s: float) -> tuple[dict[str, Any], list[bytes]]:
        assert self._process.stdin and self._process.stdout
        try:
            frames.send(self._process.stdin.fileno(), header, blob)
            text, *parts = frames.receive(self._process.stdout.fileno(), timeout_s)
        except TimeoutError:
            msg = f"the sandbox did not answer within {timeout_s:.0f} s"
            raise SandboxError(msg) from None
        except (frames.PeerGoneError, BrokenPipeError) as error:
            if self._has_started:
                raise
            assert self._process.stderr
            last = self._process.stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
            msg = f"the launcher of the sandbox has ended: {last or error}"
            raise SandboxError(msg) from None
        answer = ast.literal_eval(text.decode())
        if "error" in answer:
            msg = f"the sandbox could not be made: {answer['error']}"
            raise SandboxError(msg)
        self._has_started = True
        return answer, parts


def _command() -> list[str]:
    package = str(Path(rl_rewards.__file__).resolve().parent.parent)
    start = "import sys; sys.path.append(sys.argv[1]); from rl_rewards.confine.launcher import main; main()"
    return [interpreter(), "-I", "-S", "-c", start, package]


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
