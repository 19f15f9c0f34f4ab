"""Every exception this package raises for what a caller did or sent.

A message says what was asked, what was found, and what to do, with names and values. All classes are
``ValueError`` so that one ``except`` clause covers them; those that stand for a missing key, a bad row
number, a wrong type or a passed deadline are also the built-in exception a reader would expect.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class DataProtoError(ValueError):
    """Base of every error of this package."""


class ColumnError(DataProtoError):
    """A column cannot be used the way it was asked: its kind, shape or dtype does not fit."""


class MissingColumnError(ColumnError, KeyError):
    """A column or metadata key that was asked for is not there."""

    # KeyError prints the repr of its argument, which turns a sentence into an escaped string.
    __str__ = ValueError.__str__


class RowCountError(DataProtoError):
    """Columns, batches or per-row arguments disagree on the number of rows."""


class RowIndexError(DataProtoError, IndexError):
    """A row number is outside the batch, or a mask has another length than the batch."""


class UnevenChunkError(RowCountError):
    """The rows cannot be dealt into equal parts."""


class ConflictError(DataProtoError):
    """Two sides give one name different values."""


class EmptyConcatError(DataProtoError):
    """Nothing was given to concatenate, so neither the columns nor the class of the result are known."""


class DataProtoTypeError(DataProtoError, TypeError):
    """An argument has a type that the operation does not work on."""


class WireError(DataProtoError):
    """Bytes or files do not hold a batch, or hold something that may not be loaded."""


class FutureTimeoutError(DataProtoError, TimeoutError):
    """A future did not resolve before its deadline."""


def missing(name: object, what: str, known: Iterable[object]) -> MissingColumnError:
    """Build the error for a name that is not there, with the closest names or all of them.

    Args:
        name: The name that was asked for.
        what: What kind of name it is, for example ``"tensor column"``.
        known: Every name that exists.

    Returns:
        The error, ready to be raised.
    """
    names = sorted(str(item) for item in known)
    close = difflib.get_close_matches(str(name), names, n=3)
    if close:
        hint = f"did you mean {', '.join(map(repr, close))}?"
    elif names:
        hint = f"there are {', '.join(map(repr, names))}."
    else:
        hint = "there are none."
    return MissingColumnError(f"No {what} {name!r}: {hint}")
