"""The error of a row that is longer than it may be."""

from __future__ import annotations

from rl_core.errors import DataError


class OverLongError(DataError):
    """A row is too long, and nothing says how to shorten it."""

    num_tokens: int = 0
    """How long it is."""

    @classmethod
    def of(cls, message: str, num_tokens: int) -> OverLongError:
        """The error with its number; not an argument of the class, so that it can be pickled like any other."""
        error = cls(message)
        error.num_tokens = num_tokens
        return error
