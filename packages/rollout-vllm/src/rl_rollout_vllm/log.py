"""What vLLM says, kept so that an error can quote it: its processes die without telling their parent why."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_SOCKETS: Final = "VLLM_RPC_BASE_PATH"
_LONGEST_FOLDER: Final = 60
_CONFIGURES: Final = "VLLM_CONFIGURE_LOGGING"
_CONFIG_PATH: Final = "VLLM_LOGGING_CONFIG_PATH"
_RECORD: Final = re.compile(r"^(DEBUG|INFO|WARNING|ERROR|CRITICAL) \S+ \S+ \[[^\]]*\] (.*)$")
_ECHOES: Final = re.compile(r"^(Dumping |AsyncLLM output_handler failed|.*: Failed to load weights)")
"""Records that say nothing about the cause: what the engine was doing, its end as its parent sees it, and the layers without
weights that each update names."""
_LONGEST_LINE: Final = 300
_OUT_OF_MEMORY: Final = re.compile(
    r"out of memory|OutOfMemoryError|No available memory for the cache|less than desired|larger than the (?:available|maximum)",
    re.IGNORECASE,
)
_READ_BYTES: Final = 64 * 1024


class EngineLog:
    """A file that every process of one engine writes to; warnings and errors also go where they would have gone."""

    def __init__(self) -> None:
        """Make the files; ``close`` removes them."""
        self._folder = tempfile.TemporaryDirectory(prefix="rl-rollout-vllm-")
        self.path = Path(self._folder.name) / "engine.log"
        self._config = Path(self._folder.name) / "logging.json"
        self._config.write_text(json.dumps(_logging_config(self.path)))

    def variables(self) -> Mapping[str, str | None]:
        """Where vLLM finds it, unless a user has set up logging, and where its sockets go."""
        found: dict[str, str | None] = {}
        if not os.environ.get(_CONFIG_PATH) and os.environ.get(_CONFIGURES) != "0":
            found[_CONFIG_PATH] = str(self._config)
        # vLLM leaves its sockets behind; here they go with the folder. A socket's path has 107 bytes at most.
        if _SOCKETS not in os.environ and len(self._folder.name) < _LONGEST_FOLDER:
            found[_SOCKETS] = self._folder.name
        return found

    def last_lines(self, count: int = 12) -> list[str]:
        """The end of its last errors, tracebacks included, or of everything when there are none."""
        if not self.path.is_file():
            return []
        with self.path.open("rb") as file:
            file.seek(max(0, self.path.stat().st_size - _READ_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
        errors: list[str] = []
        others: list[str] = []
        kept = others
        for line in lines:
            text = line
            if record := _RECORD.match(line):
                is_error, text = record[1] in ("ERROR", "CRITICAL"), record[2]
                kept = [] if _ECHOES.match(text) else errors if is_error else others
            if text.strip():
                kept.append(text.rstrip()[:_LONGEST_LINE])
        return (errors or others)[-count:]

    def close(self) -> None:
        """Remove the files."""
        self._folder.cleanup()


def _logging_config(path: Path) -> dict[str, Any]:
    formatter = {
        "class": "logging.Formatter",
        "datefmt": "%m-%d %H:%M:%S",
        "format": "%(levelname)s %(asctime)s [%(filename)s:%(lineno)d] %(message)s",
    }
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": formatter},
        "handlers": {
            "file": {"class": "logging.FileHandler", "filename": str(path), "formatter": "plain", "level": "INFO"},
            "console": {
                "class": "logging.StreamHandler",
                "stream": "ext://sys.stderr",
                "formatter": "plain",
                "level": "ERROR",
            },
        },
        "loggers": {"vllm": {"handlers": ["file", "console"], "level": "INFO", "propagate": False}},
    }


def explained(what: str, error: BaseException | None, log: EngineLog) -> str:
    """``what`` happened, what vLLM said last, and the key to turn where its words tell."""
    lines = log.last_lines()
    said = lines or ([f"{type(error).__name__}: {error}"] if error is not None else [])
    everything = "\n".join([*said, str(error)])
    parts = [what]
    if _OUT_OF_MEMORY.search(everything):
        parts.append(
            "There is too little memory for it: lower actor_rollout_ref.rollout.gpu_memory_utilization (or vllm.cache_gib) if "
            "the device is full, raise it if the cache is what does not fit; max_model_len, max_num_seqs and "
            "enforce_eager=true also save memory"
        )
    parts.append("vLLM's last lines:\n  " + "\n  ".join(said))
    return ". ".join(parts)
