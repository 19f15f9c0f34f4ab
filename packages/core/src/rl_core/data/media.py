"""Images, videos and audio clips of a row: carried as handles, opened only by the workers that look at them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rl_core.data.files import plain
from rl_core.errors import DataError

if TYPE_CHECKING:
    from rl_core.config import DataConfig

COLUMN: Final = "multi_modal_data"
"""Name of the batch column: kind -> handles, {} for a row of text."""

KINDS: Final = ("image", "video", "audio")
_PLACEHOLDER: Final = re.compile(r"<(image|video|audio)>")


@dataclass(frozen=True, slots=True)
class MediaHandle:
    """One image, video or audio clip, where it lies.

    Attributes:
        kind: ``image``, ``video`` or ``audio``.
        path: file or address; None where the row holds the bytes themselves.
        data: the encoded bytes; None where only ``path`` is known.
    """

    kind: str
    path: str | None = None
    data: bytes | None = field(default=None, repr=False)

    def read(self) -> bytes:
        """The encoded bytes.

        Raises:
            DataError: they lie in a file that cannot be read.
        """
        if self.data is not None:
            return self.data
        try:
            return Path(self.path or "").expanduser().read_bytes()
        except OSError as error:
            msg = f"{self.kind} {self.path} cannot be read: {error}"
            raise DataError(msg) from error


def row_media(number: int, row: Mapping[str, Any], config: DataConfig) -> dict[str, list[MediaHandle]]:
    """The handles of a row by kind; kinds of which it has none are absent.

    Args:
        number: of the row, for messages.
        row: with the columns ``data.image_key``, ``data.video_key`` and ``data.audio_key``, each a list of paths, bytes or
            mappings with ``path`` or ``bytes`` (``image``, ``video`` and ``audio`` name a path too), or one of these.
        config: the ``data`` section.

    Raises:
        DataError: something else stands there.
    """
    columns = {"image": config.image_key, "video": config.video_key, "audio": config.audio_key}
    found = {kind: _handles(number, row.get(column), kind, column) for kind, column in columns.items()}
    return {kind: handles for kind, handles in found.items() if handles}


def with_placeholders(
    number: int, messages: Sequence[Mapping[str, Any]], media: Mapping[str, Sequence[Any]]
) -> list[dict[str, Any]]:
    """Messages in which ``<image>``, ``<video>`` and ``<audio>`` are parts of their own, as templates show them.

    Args:
        number: of the row, for messages.
        messages: with texts as content, or lists of parts.
        media: kind -> handles of the row.

    Raises:
        DataError: the messages have another number of places than the row has handles.
    """
    shown = [dict(message) for message in messages]
    for message in shown:
        if isinstance(message.get("content"), str) and _PLACEHOLDER.search(message["content"]):
            message["content"] = _parts(message["content"])
    parts = [part for message in shown if isinstance(message.get("content"), list) for part in message["content"]]
    for kind in KINDS:
        places = sum(isinstance(part, Mapping) and part.get("type") == kind for part in parts)
        if places != len(media.get(kind, ())):
            msg = (
                f"row {number}: the messages have {places} places for {kind}s (<{kind}>), the row has "
                f"{len(media.get(kind, ()))}"
            )
            raise DataError(msg)
    return shown


def _parts(text: str) -> list[dict[str, str]]:
    pieces = _PLACEHOLDER.split(text)  # texts at even places, kinds at odd ones
    return [
        {"type": piece} if place % 2 else {"type": "text", "text": piece}
        for place, piece in enumerate(pieces)
        if place % 2 or piece
    ]


def _handles(number: int, value: Any, kind: str, column: str) -> list[MediaHandle]:
    value = plain(value)
    if value is None:
        return []
    values = value if isinstance(value, list) else [value]
    return [_handle(number, item, kind, column) for item in values if item is not None]


def _handle(number: int, value: Any, kind: str, column: str) -> MediaHandle:
    if isinstance(value, bytes):
        return MediaHandle(kind, data=value)
    if isinstance(value, str):
        return MediaHandle(kind, path=value)
    if isinstance(value, Mapping):
        data = value.get("bytes")
        path = next((value[key] for key in ("path", kind, "url") if isinstance(value.get(key), str)), None)
        if isinstance(data, bytes) or path is not None:
            return MediaHandle(kind, path=path, data=data if isinstance(data, bytes) else None)
    msg = f"row {number}: {column} must hold paths, bytes or mappings with path or bytes; found {_short(value)}"
    raise DataError(msg)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}... ({type(value).__name__})"
