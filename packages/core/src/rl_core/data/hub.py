"""Data sets of the Hugging Face Hub, or of its local cache, through the ``datasets`` library.

::

    hf://openai/gsm8k:main/train        owner/name : configuration / split
    hf://squad:plain_text/train         a data set without an owner; the colon tells its name from the split
    openai/gsm8k                        the same without the scheme, where no file or folder is called so
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, NamedTuple

from rl_core.errors import DataError

SCHEME: Final = "hf://"
_WORD: Final = r"[A-Za-z0-9_.-]+"
_NAME: Final = re.compile(
    rf"(?P<name>(?:{_WORD}/)?{_WORD})(?::(?P<config>{_WORD}))?(?:/(?P<split>{_WORD}(?:\[[^\]]*\])?))?"
)
_BARE: Final = re.compile(rf"{_WORD}/{_WORD}(?::{_WORD})?(?:/{_WORD})?")


class HubName(NamedTuple):
    """What a name on the Hub consists of."""

    name: str
    config: str | None
    split: str | None


def is_hub_name(name: str, path: Path) -> bool:
    """Whether ``name`` is to be looked for on the Hub: it has the scheme, or could not be a file.

    Args:
        name: as given.
        path: the file it would be.
    """
    if name.startswith(SCHEME):
        return True
    is_file_name = path.suffix in (".jsonl", ".json", ".parquet", ".csv", ".txt")
    return bool(_BARE.fullmatch(name)) and not is_file_name and not path.exists() and not path.parent.is_dir()


def parse_hub_name(name: str) -> HubName:
    """Take a name apart.

    Raises:
        DataError: it has another form.
    """
    found = _NAME.fullmatch(name.removeprefix(SCHEME))
    if found is None:
        msg = f"{name!r} is no name of a Hub data set; they look like hf://owner/name:configuration/split"
        raise DataError(msg)
    return HubName(found["name"], found["config"], found["split"])


def read_hub(name: str) -> list[dict[str, Any]]:
    """All rows of one split, as the files hold them: images and audio as ``{bytes, path}``, not decoded.

    Raises:
        DataError: the library is missing, the data set cannot be had, or it has several splits and none is named.
    """
    wanted = parse_hub_name(name)
    try:
        import datasets  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra
    except ImportError as error:
        msg = (
            f"{name} is a Hub data set, which needs the library datasets: pip install 'rl-core[hub]'. Or give a file "
            "(.parquet, .jsonl, .json)."
        )
        raise DataError(msg) from error
    try:
        found = datasets.load_dataset(wanted.name, wanted.config, split=wanted.split)
    except Exception as error:  # the library raises its own kinds, the network's and those of data files
        msg = (
            f"Hub data set {name} could not be loaded: {type(error).__name__}: {error}. Without a network only data sets in "
            "the local cache can be had: load it once where there is one, or give files (.parquet, .jsonl, .json)."
        )
        raise DataError(msg) from error
    if isinstance(found, dict):
        if len(found) > 1:
            msg = f"{name} has the splits {', '.join(found)}; name one: {name.rstrip('/')}/{next(iter(found))}"
            raise DataError(msg)
        found = next(iter(found.values()))
    rows: list[dict[str, Any]] = found.with_format("arrow")[:].to_pylist()
    return rows
