"""Putting given values into the typed tree, and judging the values themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rl_core.config.nested import leaves
from rl_core.config.node import MISSING
from rl_core.config.schema import Key, Schema, join
from rl_core.config.secrets import is_secret_path

if TYPE_CHECKING:
    from omegaconf import DictConfig


@dataclass
class Sorted:
    """Given values, sorted by what the schema knows."""

    values: dict[str, Any] = field(default_factory=dict)
    """Path of a key (or of a section given as an interpolation) -> value."""

    unknown: dict[str, Any] = field(default_factory=dict)
    """Path nothing stands for -> value; the topmost unknown part of each."""

    errors: list[str] = field(default_factory=list)


def sort_values(given: Mapping[str, Any], schema: Schema) -> Sorted:
    """Tell known keys from unknown ones."""
    result = Sorted()
    _sort("", given, schema, result)
    return result


def _sort(prefix: str, node: Mapping[str, Any], schema: Schema, result: Sorted) -> None:
    for name, value in node.items():
        path = join(prefix, str(name))
        if path in schema.keys:
            if isinstance(value, Mapping) and not schema.keys[path].is_free_form:
                result.unknown.update((join(path, rest), leaf) for rest, leaf in leaves(value) if rest)
            else:
                result.values[path] = value
        elif path not in schema.sections:
            result.unknown[path] = value
        elif isinstance(value, Mapping):
            _sort(path, value, schema, result)
        elif isinstance(value, str) and "${" in value:
            result.values[path] = value
        elif value is not None:
            # Null is what an empty section in a YAML file reads as.
            result.errors.append(f"{path} is a section; it cannot be set to {value!r}. Set one of the keys below it.")


def assign(raw: DictConfig, values: Mapping[str, Any], schema: Schema) -> list[str]:
    """Set values, converted to the type of their key.

    Returns:
        One message for each value that has another type.
    """
    from omegaconf import OmegaConf  # noqa: PLC0415 - loaded only to compose
    from omegaconf.errors import OmegaConfBaseException  # noqa: PLC0415 - loaded only to compose

    errors = []
    for path, value in values.items():
        key = schema.keys.get(path)
        try:
            OmegaConf.update(raw, path, _as_wanted(value, key), merge=False)
        except OmegaConfBaseException:
            annotation = key.annotation if key is not None else "section"
            shown = "its value" if is_secret_path(path) else "null" if value is None else repr(value)
            errors.append(f"{path} takes {_in_words(annotation)}; found {shown}.")
    return errors


def _as_wanted(value: Any, key: Key | None) -> Any:
    """One text stands for a list of one, and null for an empty free-form section."""
    if key is None:
        return value
    if key.annotation.startswith("list[") and isinstance(value, str) and "${" not in value:
        return [value]
    return {} if value is None and key.is_free_form else value


def resolve(raw: DictConfig, paths: Iterable[str]) -> list[str]:
    """Fill in every interpolation.

    Returns:
        One message for each key whose interpolation cannot be filled in; such keys keep it.
    """
    from omegaconf import OmegaConf  # noqa: PLC0415 - loaded only to compose
    from omegaconf.errors import OmegaConfBaseException  # noqa: PLC0415 - loaded only to compose

    errors = []
    for path in paths:
        try:
            value = OmegaConf.select(raw, path)
            if OmegaConf.is_config(value):
                OmegaConf.resolve(value)
        except OmegaConfBaseException as error:
            reason = str(error).splitlines()[0]
            shown = "" if is_secret_path(path) else f" ({reason})"
            errors.append(f"{path} holds an interpolation that cannot be filled in{shown}.")
    if not errors:
        OmegaConf.resolve(raw)
    return errors


def limit_errors(raw: DictConfig, schema: Schema) -> list[str]:
    """One message for each value outside the limits of its key."""
    from omegaconf import OmegaConf  # noqa: PLC0415 - loaded only to compose

    errors = []
    for key in schema.keys.values():
        if not key.metadata.keys() & {"choices", "ge", "gt", "le"}:
            continue
        value = OmegaConf.select(raw, key.path)
        if value is None or value == MISSING:
            continue
        problem = _limit_problem(value, key.metadata)
        if problem:
            errors.append(f"{key.path} {problem}; found {value!r}.")
    return errors


def _limit_problem(value: Any, limits: Mapping[str, Any]) -> str | None:
    if "choices" in limits and value not in limits["choices"]:
        return f"takes one of {', '.join(limits['choices'])}"
    if "ge" in limits and not value >= limits["ge"]:
        return f"must be at least {limits['ge']:g}"
    if "gt" in limits and not value > limits["gt"]:
        return f"must be more than {limits['gt']:g}"
    if "le" in limits and not value <= limits["le"]:
        return f"must be at most {limits['le']:g}"
    return None


def _in_words(annotation: str) -> str:
    words = {
        "int": "a whole number",
        "float": "a number",
        "bool": "true or false",
        "str": "text",
        "None": "null",
        "list[str]": "a list of texts",
        "list[int]": "a list of whole numbers",
        "list[float]": "a list of numbers",
        "dict[str, Any]": "a mapping",
        "section": "a mapping of its own keys",
    }
    return " or ".join(words.get(part.strip(), part.strip()) for part in annotation.split("|"))
