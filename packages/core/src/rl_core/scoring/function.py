"""Reward functions by where they are defined, so that a process of its own can load the same one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rl_core.plugins.from_file import load_from_file

if TYPE_CHECKING:
    from rl_core.plugins import Registry

RewardCallable = Callable[..., Any]


class FileFunction:
    """A function from a file of the user's. Pickled, it is the file's path: each process loads the file itself, once."""

    def __init__(self, path: str, name: str, reward_kwargs: Mapping[str, Any] | None = None) -> None:
        """Store where it is, and its arguments from the configuration."""
        self.path = path
        self.name = name
        self.reward_kwargs = dict(reward_kwargs or {})
        self._plain: RewardCallable | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return FileFunction, (self.path, self.name, self.reward_kwargs)

    def plain(self) -> RewardCallable:
        """The function as it is in the file.

        Raises:
            ConfigError: see ``load_from_file``.
        """
        if self._plain is None:
            self._plain = cast("RewardCallable", load_from_file(Path(self.path), self.name, "custom_reward_function"))
        return self._plain

    def resolve(self) -> RewardCallable:
        """The function itself, with its arguments from the configuration."""
        return partial(self.plain(), **self.reward_kwargs) if self.reward_kwargs else self.plain()

    def __call__(self, **arguments: Any) -> Any:
        """Call it here."""
        return self.resolve()(**arguments)


@dataclass(frozen=True)
class PluginFunction:
    """A function of a plugin; a process imports the function's module, and no other plugin.

    Attributes:
        target: ``"module:attribute"``.
        owner: names it in messages.
        settings: sections of the configuration by the argument that gets them, in functions that have it.
        reward_kwargs: further arguments.
    """

    target: str
    owner: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    reward_kwargs: Mapping[str, Any] = field(default_factory=dict)

    def resolve(self) -> RewardCallable:
        """The function itself, with its arguments and those settings that it has an argument for.

        Raises:
            PluginLoadError: its module does not load.
        """
        function = self.plain()
        wanted = {name: value for name, value in self.settings.items() if takes(function, name)}
        wanted |= self.reward_kwargs
        return partial(function, **wanted) if wanted else function

    def plain(self) -> RewardCallable:
        """The function as it is in its module.

        Raises:
            PluginLoadError: its module does not load.
        """
        from rl_core.plugins.targets import resolve_target  # noqa: PLC0415 - a process with a file's function never needs it

        return cast("RewardCallable", resolve_target(self.target, self.owner))

    def __call__(self, **arguments: Any) -> Any:
        """Call it here."""
        return self.resolve()(**arguments)


def takes(function: RewardCallable, name: str) -> bool:
    """Whether a function has an argument of that name."""
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False  # a builtin says nothing


class FunctionsBySource:
    """The reward of each ``data_source``, as plugins register them."""

    def __init__(
        self,
        registry: Registry,
        settings: Mapping[str, Any] | None = None,
        reward_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Store the registry, which stays in this process.

        Args:
            registry: knows the installed rewards.
            settings: sections of the configuration that functions may want.
            reward_kwargs: arguments that every function gets.
        """
        self._registry = registry
        self._settings = dict(settings or {})
        self._reward_kwargs = dict(reward_kwargs or {})
        self._found: dict[str, PluginFunction] = {}

    def for_source(self, data_source: str) -> PluginFunction:
        """The function of a data source.

        Raises:
            PluginNotFoundError: no plugin has one.
        """
        if data_source not in self._found:
            self._registry.load(
                "reward", data_source
            )  # what it needs is there, and it loads: better said here than in a process
            record = self._registry.record("reward", data_source)
            self._found[data_source] = PluginFunction(
                record.target, f"reward {record.name!r}", self._settings, self._reward_kwargs
            )
        return self._found[data_source]

    def __call__(self, *, data_source: str, **arguments: Any) -> Any:
        """Call the function of a row here."""
        return self.for_source(data_source).resolve()(data_source=data_source, **arguments)
