"""What a run leaves behind besides numbers: the resolved configuration, versions, and the state of the code."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_core.config import config_to_yaml
from rl_core.config.secrets import redact_override
from rl_core.trainer.json_text import to_json

if TYPE_CHECKING:
    from rl_core.config import Composed
    from rl_core.plugins import Registry

_WATCHED = ("torch", "transformers", "ray", "numpy", "tensordict", "hydra-core", "pluggy")


def write_run_folder(config: Composed, registry: Registry) -> Path:
    """Write ``config.yaml`` (secrets redacted) and ``environment.json`` into the run folder.

    A resumed run overwrites them: they describe the process that writes the newest steps. So it is called once a run is known
    to add some: not for one that is refused, or that goes on from a checkpoint and only looks at it.
    """
    folder = Path(config.tree.trainer.default_local_dir).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(config_to_yaml(config), encoding="utf-8")
    (folder / "environment.json").write_text(to_json(environment(registry)) + "\n", encoding="utf-8")
    return folder


def environment(registry: Registry) -> dict[str, Any]:
    """Versions of Python, of the libraries that numbers depend on, of every plugin; commit of the working directory."""
    installed = {dist.metadata["Name"]: dist.version for dist in distributions()}
    return {
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "packages": {name: installed[name] for name in _WATCHED if name in installed},
        "plugins": registry.plugin_table(),
        "git": git_state(Path.cwd()),
        "command": [redact_override(argument) for argument in sys.argv],
    }


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit of the repository around ``folder`` and whether files differ from it; None outside of one."""

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None  # no git here, or one that hangs: the run matters more than its footnote
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    return None if commit is None else {"commit": commit, "modified": bool(git("status", "--porcelain"))}
