"""Secrets in a configuration: which values are never printed, logged or written to the run folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

REDACTED: Final = "<redacted>"

_SECRET_SECTIONS: Final = frozenset({"env_vars"})
_SECRET_NAMES: Final = re.compile(
    r"(^|[_-])(api[_-]?key|access[_-]?key|private[_-]?key|secret([_-]?key)?|passw(or)?d|credentials?|"
    r"(openai|anthropic|wandb|hf|hugging[_-]?face|aws|azure|google|gcp|mistral|cohere)[_-]?key|"
    r"(auth|access|hf|api|bearer|refresh|git(hub|lab)|bot|session|slack|wandb)[_-]?token)$|[_-]token$|^token$|"
    r"^authorization$",
    re.IGNORECASE,
)
_ORDINARY_TOKENS: Final = re.compile(
    r"(^|[_-])(eos|bos|pad|unk|sep|cls|mask|stop|special|image|video|audio|think|end|start|first|last|next|per|min|max|new)"
    r"[_-]token$",
    re.IGNORECASE,
)
"""Tokens of a text, not of a login."""
_LOGIN_IN_URL: Final = re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")


def is_secret_path(path: str) -> bool:
    """Whether the value at this dotted path must not be shown.

    Everything below a section named ``env_vars`` is secret, whatever its name: environments carry tokens under any
    name. Elsewhere names such as ``api_key``, ``password`` or ``github_token`` are.
    """
    *above, last = path.split(".")
    is_secret_name = _SECRET_NAMES.search(last) and not _ORDINARY_TOKENS.search(last)
    return any(part in _SECRET_SECTIONS for part in above) or bool(is_secret_name)


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
    return _without_login(value) if isinstance(value, str) else value


def redact_override(text: str) -> str:
    """A command-line override that is safe to print."""
    key, equals, value = text.partition("=")
    name = key.lstrip("+~").strip()
    if not equals:
        return text
    # A section given whole, as a dictionary, is hidden whole: its braces are not worth parsing to show the rest.
    names_in_value = re.findall(r"([\w-]+)['\"]?\s*(?::(?!//)|=)", value)
    holds_secret = any(inner in _SECRET_SECTIONS or is_secret_path(inner) for inner in names_in_value)
    is_hidden = holds_secret or name.rpartition(".")[2] in _SECRET_SECTIONS or is_secret_path(name)
    return f"{key}={REDACTED}" if is_hidden else _without_login(text)


def _without_login(text: str) -> str:
    """``text`` without the user and password of a URL in it."""
    return _LOGIN_IN_URL.sub(REDACTED, text)
