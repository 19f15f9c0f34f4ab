"""Configurations as text that is safe to show and to keep."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rl_core.config.compose import Composed, compose_command
from rl_core.config.layout import PPO, Layout
from rl_core.config.secrets import redact_tree
from rl_core.errors import ConfigError

if TYPE_CHECKING:
    from rl_core.config.overrides import CliRequest
    from rl_core.plugins import Registry


def redact(config: Any) -> Any:
    """A plain copy of a configuration in which secrets are replaced.

    Args:
        config: a ``Config``, an OmegaConf container, a dataclass, or plain dictionaries and lists.

    Returns:
        Dictionaries, lists and values. The names of secret keys stay, so that one sees that they were set.
    """
    return redact_tree(_plain(config))


def config_to_yaml(config: Any, *, resolve: bool = True, package: str | None = None) -> str:
    """A configuration as YAML, secrets replaced.

    Args:
        config: as for ``redact``.
        resolve: with interpolations and derived values filled in; without, as the files and overrides say.
        package: dotted path of the one section to show.

    Raises:
        ConfigError: there is no such section.
    """
    from omegaconf import OmegaConf  # noqa: PLC0415 - loaded only to compose

    shown = config.unresolved if isinstance(config, Composed) and not resolve else config
    tree = redact(shown)
    for part in package.split(".") if package else ():
        if not isinstance(tree, Mapping) or part not in tree:
            msg = f"there is no section {package!r} to show. See all sections: rl config show"
            raise ConfigError(msg)
        tree = tree[part]
    if not isinstance(tree, Mapping | list):
        return f"{tree}\n"
    text: str = OmegaConf.to_yaml(OmegaConf.create(tree))
    return text


def cfg_text(request: CliRequest, registry: Registry | None = None, layout: Layout = PPO) -> str:
    """What ``--cfg job`` prints: the composed configuration as YAML, without running anything.

    Raises:
        RlError: the configuration cannot be composed.
    """
    return config_to_yaml(compose_command(request, layout, registry), resolve=request.resolve, package=request.package)


def _plain(config: Any) -> Any:
    from omegaconf import OmegaConf  # noqa: PLC0415 - loaded only to compose

    if isinstance(config, Composed):
        return _plain(config.raw)
    if OmegaConf.is_config(config):
        return OmegaConf.to_container(config, resolve=False)
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        # vars, not fields: a plugin's section hangs on its parent as an attribute that no field declares.
        return {name: _plain(value) for name, value in vars(config).items() if not name.startswith("_")}
    if isinstance(config, Mapping):
        return {name: _plain(value) for name, value in config.items()}
    if isinstance(config, list | tuple):
        return [_plain(value) for value in config]
    return config
