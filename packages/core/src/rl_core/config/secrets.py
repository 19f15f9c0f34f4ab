"""Secrets in a configuration: which values are never printed, logged or written to the run folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

REDACTED: Final = "<redacted>"

_SECRET_SECTIONS: Final = frozenset({"env_vars"})
_SECRET_NAMES: Final = re.compile(
    r"(^|[_-])(api[_-]?key|access[_-]?key|private[_-]?key|secret([_-]?key)?|passw(or)?d|credentials?|"
    r"(auth|access|hf|api|bearer|refresh)[_-]?token)$|^token$|^authorization$",
    re.IGNORECASE,
)


def is_secret_path(path: str) -> bool:
    """Whether the value at this dotted path must not be shown.

    Everything below a section named ``env_vars`` is secret, whatever its name: environments carry tokens under any
    name. Elsewhere names such as ``api_key`` or ``password`` are.
    """
    *above, last = path.split(".")
    return any(part in _SECRET_SECTIONS for part in above) or bool(_SECRET_NAMES.search(last))


def redact_tree(value: Any, path: str = "") -> Any:
    """A copy of plain dictionaries, lists and values in which secrets are replaced.

    Args:
        value: the tree.
        path: where it stands in the configuration.
    """
    if isinstance(value, Mapping):
        return {name: redact_tree(item, f"{path}.{name}" if path else str(name)) for name, item in value.items()}
    if path and is_secret_path(path) and value is not None:
        return REDACTED
    if isinstance(value, list | tuple):
        return [redact_tree(item, path) for item in value]
    return value


def redact_override(text: str) -> str:
    """A command-line override that is safe to print."""
    key, equals, value = text.partition("=")
    name = key.lstrip("+~").strip()
    if not equals:
        return text
    holds_section = any(
        section in (name.rpartition(".")[2], *re.findall(r"\w+", value)) for section in _SECRET_SECTIONS
    )
    # A section given whole, as a dictionary, is hidden whole: its braces are not worth parsing to show the rest.
    return f"{key}={REDACTED}" if holds_section or is_secret_path(name) else text
