"""How every entry point of the project ends: expected errors as text, bugs with their traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Final

from rl_core.errors import RlError

EXPECTED_ERROR: Final = 2
"""Exit status of an expected error."""

INTERRUPTED: Final = 130
"""Exit status after Ctrl-C, as shells have it."""


def report_errors(command: Callable[[list[str]], int], argv: Sequence[str]) -> int:
    """Run ``command(argv)`` and print expected errors to stderr as text; for every entry point of this project.

    ``--traceback`` is taken out of ``argv`` and lets the error through with its traceback instead. Errors outside the
    ``RlError`` family are bugs and always come with theirs.
    """
    arguments = list(argv)
    show_traceback = "--traceback" in arguments
    try:
        return command([argument for argument in arguments if argument != "--traceback"])
    except KeyboardInterrupt:
        text = (
            "interrupted. The same command goes on from the newest checkpoint of its run folder, if it has saved one."
        )
        print(text, file=sys.stderr)  # noqa: T201 - where errors of a command go
        return INTERRUPTED
    except RlError as error:
        if show_traceback:
            # Printed by hand and not re-raised, so that the exit status does not depend on the option.
            import traceback  # noqa: PLC0415

            traceback.print_exception(error)
        else:
            print(f"error: {error}", file=sys.stderr)  # noqa: T201 - where errors of a command go
        return EXPECTED_ERROR
