"""Help texts: the string literal under a dataclass field, read from the source."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap

from rl_core.errors import ConfigError


@functools.cache
def field_help(cls: type) -> dict[str, str]:
    """Help text of every field of a dataclass, inherited ones included.

    Args:
        cls: a class whose source can be read.

    Returns:
        Field name -> text on one line; fields without a text are absent.

    Raises:
        ConfigError: the source cannot be read.
    """
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if "__dataclass_fields__" in vars(base):
            texts.update(_own_help(base))
    return texts


def _own_help(cls: type) -> dict[str, str]:
    try:
        source = textwrap.dedent(inspect.getsource(cls))
    except (OSError, TypeError) as error:
        msg = f"help texts of {cls.__module__}.{cls.__qualname__} cannot be read: its source is not there."
        raise ConfigError(msg) from error
    (definition,) = ast.parse(source).body
    if not isinstance(definition, ast.ClassDef):
        return {}
    texts = {}
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            texts[field.target.id] = " ".join(str(below.value.value).split())
    return texts
