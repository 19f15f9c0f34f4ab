"""Schemas of the tools that prompts show: from a YAML file, from a Python file of functions, or from the row itself."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rl_core.data.files import plain
from rl_core.data.json_lists import parsed_list
from rl_core.errors import ConfigError, DataError
from rl_core.plugins.from_file import module_from_file

Schema = dict[str, Any]
SELECTION: Final = "tool_selection"
"""Field of ``extra_info`` with the names of the configured tools that a row has."""


def configured_tools(tool_config_path: str | None, function_tool_path: str | None) -> list[Schema]:
    """Schemas of all tools that the configuration names, in order; none where it names none.

    Args:
        tool_config_path: YAML with ``tools``, a list of entries that are schemas themselves or hold one in ``tool_schema``.
        function_tool_path: Python file; each public function of its own is a tool, described by its type hints and
            Google docstring, or by an attribute ``tool_schema``.

    Raises:
        ConfigError: a file cannot be used, or two tools have one name.
    """
    schemas = _from_yaml(tool_config_path) if tool_config_path else []
    schemas += _from_functions(function_tool_path) if function_tool_path else []
    names = [tool_name(schema) for schema in schemas]
    double = sorted({str(name) for name in names if names.count(name) > 1})
    if double:
        msg = f"tools {', '.join(double)} are defined twice, in {tool_config_path} and {function_tool_path}"
        raise ConfigError(msg)
    return schemas


def row_tools(number: int, row: Mapping[str, Any], configured: Sequence[Schema]) -> list[Schema]:
    """Tools of one row: its column ``tools``, or else the configured ones, or those that it selects of them.

    Args:
        number: of the row, for messages.
        row: with ``tools`` (schemas, or their JSON text) or ``extra_info.tool_selection`` (names).
        configured: tools of the configuration.

    Raises:
        DataError: the column holds no schemas, or a selected tool does not exist.
    """
    if row.get("tools") is not None:
        own = [plain(schema) for schema in parsed_list(number, row["tools"], "tools")]
        for schema in own:
            if tool_name(schema) is None:
                msg = f"row {number}: tools must be schemas with a name (type, function.name, ...); found {schema!r}"
                raise DataError(msg)
        return own
    extra = row.get("extra_info")
    selection = extra.get(SELECTION) if isinstance(extra, Mapping) else None
    if selection is None:
        return list(configured)
    by_name = {tool_name(schema): schema for schema in configured}
    chosen = parsed_list(number, selection, f"extra_info.{SELECTION}")
    unknown = [name for name in chosen if name not in by_name]
    if unknown:
        msg = (
            f"row {number}: extra_info.{SELECTION} names {', '.join(map(repr, unknown))}; the tools of data.tool_config_path "
            f"and data.function_tool_path are {', '.join(map(str, by_name)) or 'none'}"
        )
        raise DataError(msg)
    return [by_name[name] for name in chosen]


def tool_name(schema: Any) -> str | None:
    """Name of the function that a schema describes, in OpenAI's form or bare; None where it describes none."""
    function = schema.get("function", schema) if isinstance(schema, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    return name if isinstance(name, str) else None


def _from_yaml(path: str) -> list[Schema]:
    from omegaconf import OmegaConf  # noqa: PLC0415 - only files with tools need it

    file = Path(path).expanduser()
    if not file.is_file():
        msg = f"data.tool_config_path is {path}: no such file"
        raise ConfigError(msg)
    try:
        content = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
    except Exception as error:  # the reader of YAML has kinds of its own
        msg = f"data.tool_config_path {path} is not YAML: {error}"
        raise ConfigError(msg) from error
    entries = content.get("tools") if isinstance(content, Mapping) else content
    if not isinstance(entries, list):
        msg = f"data.tool_config_path {path} must hold a list under 'tools'"
        raise ConfigError(msg)
    schemas = [entry.get("tool_schema", entry) if isinstance(entry, Mapping) else entry for entry in entries]
    for number, schema in enumerate(schemas):
        if tool_name(schema) is None:
            msg = (
                f"data.tool_config_path {path}: entry {number} has no schema with a name; it needs tool_schema: "
                "{type: function, function: {name: ..., description: ..., parameters: ...}}"
            )
            raise ConfigError(msg)
    return schemas


def _from_functions(path: str) -> list[Schema]:
    from transformers.utils import get_json_schema  # noqa: PLC0415 - heavy

    module = module_from_file(Path(path), "data.function_tool_path")
    schemas = []
    for name, function in vars(module).items():
        if name.startswith("_") or not inspect.isfunction(function) or function.__module__ != module.__name__:
            continue
        try:
            schemas.append(getattr(function, "tool_schema", None) or get_json_schema(function))
        except Exception as error:  # the library has a kind for each thing that a docstring may lack
            msg = f"data.function_tool_path {path}: {name} cannot be described as a tool: {error}"
            raise ConfigError(msg) from error
    if not schemas:
        msg = f"data.function_tool_path {path} has no public function"
        raise ConfigError(msg)
    return schemas
