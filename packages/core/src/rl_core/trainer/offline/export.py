"""The trained model as a folder for others: written whole, and never over something that is not an earlier export."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from rl_core.errors import ConfigError
from rl_core.trainer.json_text import to_json

MARKER: Final = "rl_export.json"
"""File in an export that says where it comes from; a folder without it is not replaced."""


def require_replaceable(folder: Path) -> None:
    """Refuse a folder that holds something else than an export; asked before anything is trained.

    Raises:
        ConfigError: there is something else.
    """
    if folder.exists() and not (folder / MARKER).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        msg = (
            f"trainer.export_dir is {folder}, which holds something else than an earlier export, and would be replaced. "
            "Choose another folder, or null to export nothing."
        )
        raise ConfigError(msg)


def export_model(folder: Path, write: Callable[[str], Any], origin: Mapping[str, Any]) -> None:
    """Write an export in place of an earlier one.

    Args:
        folder: where it will stand.
        write: fills the folder of the given path.
        origin: what the export comes from, kept beside the model.

    Raises:
        ConfigError: ``folder`` holds something else.
    """
    require_replaceable(folder)
    partial, replaced = (folder.with_name(f".{folder.name}.{word}") for word in ("partial", "replaced"))
    for leftover in (partial, replaced):
        shutil.rmtree(leftover, ignore_errors=True)
    write(str(partial))
    (partial / MARKER).write_text(to_json(origin) + "\n", encoding="utf-8")
    if folder.exists():
        folder.rename(replaced)
    partial.rename(folder)
    shutil.rmtree(replaced, ignore_errors=True)
