"""What the user gave, and only that: files and overrides, composed by Hydra onto an empty base.

Composing onto nothing instead of onto the defaults keeps apart what was given and what was not, which the warnings
need, and leaves every judgement about keys to ``compose``, whose messages name the closest ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_core.config.layout import PPO, Layout
from rl_core.config.overrides import BASE_NAME, ParsedOverride, parse_overrides
from rl_core.errors import ConfigError

_GENERATED_DIR = Path(__file__).resolve().parents[1] / "trainer" / "config"
"""Where the generated files lie; they are copies of the defaults for people to read."""


@dataclass
class Given:
    """Values as the user gave them."""

    values: dict[str, Any] = field(default_factory=dict)
    """Nested, interpolations unresolved."""

    typed: dict[str, str] = field(default_factory=dict)
    """Key of each override -> the override as it was typed."""

    source: str | None = None
    """The configuration file, for messages; None without one."""

    errors: list[ConfigError] = field(default_factory=list)


def gather(
    overrides: Sequence[str],
    config_name: str = BASE_NAME,
    config_path: str | Path | None = None,
    config_dir: str | Path | None = None,
    layout: Layout = PPO,
) -> Given:
    """Compose files and overrides.

    Args:
        overrides: command-line overrides in Hydra's grammar.
        config_name: configuration file without ``.yaml``; the base name stands for the defaults.
        config_path: its folder.
        config_dir: a further folder that its defaults list may draw from.
        layout: the kind of run, whose name is the base name.

    Returns:
        The values, with one error for each override that cannot be read; nothing is composed when there is any.

    Raises:
        ConfigError: a folder or file is not there, or Hydra cannot compose it.
    """
    main = None if config_path is None else _folder(config_path, "--config-path")
    if main == _GENERATED_DIR:
        main = None
    extra = None if config_dir is None else _folder(config_dir, "--config-dir")
    folders = [folder for folder in (main, extra) if folder is not None]
    _require_file(config_name, folders, layout)
    parsed, errors = parse_overrides(overrides, folders)
    given = Given(errors=errors, typed={item.key: item.text for item in parsed if item.key is not None})
    if config_name != layout.name or main is not None:
        given.source = f"{config_name}.yaml"
    if not errors:
        given.values = _compose(parsed, config_name, main, extra, layout)
    return given


def _folder(path: str | Path, option: str) -> Path:
    folder = Path(path).expanduser().resolve()
    if not folder.is_dir():
        msg = f"{option} is {str(path)!r}, but there is no folder {folder}."
        raise ConfigError(msg)
    return folder


def _require_file(config_name: str, folders: Sequence[Path], layout: Layout) -> None:
    stem = config_name.removesuffix(".yaml")
    if stem == layout.name or any((folder / f"{stem}.yaml").is_file() for folder in folders):
        return
    if not folders:
        msg = f"--config-name is {config_name!r}, but no folder is given. Add --config-path FOLDER."
        raise ConfigError(msg)
    found = sorted(file.stem for folder in folders for file in folder.glob("*.yaml"))
    where = " or ".join(str(folder) for folder in folders)
    msg = f"--config-name is {config_name!r}, but {where} has no {stem}.yaml. It has: {', '.join(found) or 'none'}."
    raise ConfigError(msg)


def _compose(
    parsed: Sequence[ParsedOverride], config_name: str, main: Path | None, extra: Path | None, layout: Layout
) -> dict[str, Any]:
    # Hydra and OmegaConf are loaded only when something is composed.
    from hydra import compose, initialize, initialize_config_dir  # noqa: PLC0415 - loaded only to compose
    from hydra.errors import HydraException  # noqa: PLC0415 - loaded only to compose
    from omegaconf import OmegaConf  # noqa: PLC0415 - loaded only to compose
    from omegaconf.errors import OmegaConfBaseException  # noqa: PLC0415 - loaded only to compose

    texts = [item.hydra_text for item in parsed]
    if extra is not None:
        texts.append(f"hydra.searchpath=[file://{extra}]")
    start = (
        initialize(version_base="1.3", config_path=None, job_name="rl")
        if main is None
        else initialize_config_dir(version_base="1.3", config_dir=str(main), job_name="rl")
    )
    try:
        with _empty_base(layout), start:
            composed = compose(config_name=config_name, overrides=texts)
    except (HydraException, OmegaConfBaseException) as error:
        reasons = dict.fromkeys(str(reason).splitlines()[0] for reason in (error, error.__cause__) if reason)
        msg = f"Hydra cannot compose {config_name!r}: {'; '.join(reasons)}"
        raise ConfigError(msg) from error
    container = OmegaConf.to_container(composed, resolve=False)
    if not isinstance(container, dict):
        msg = f"{config_name}.yaml holds a list; a configuration is a mapping of sections."
        raise ConfigError(msg)
    return {str(name): value for name, value in container.items()}


@contextmanager
def _empty_base(layout: Layout) -> Iterator[None]:
    """Let the base name stand for nothing while Hydra composes; what it stood for before is put back."""
    from hydra.core.config_store import ConfigStore  # noqa: PLC0415 - loaded only to compose

    store, file = ConfigStore.instance(), f"{layout.name}.yaml"
    before = store.repo.get(file)
    store.store(name=layout.name, node={})
    try:
        yield
    finally:
        if before is None:
            del store.repo[file]
        else:
            store.repo[file] = before


def register_defaults(layout: Layout = PPO) -> None:
    """Store core's defaults under the base name, for other Hydra applications of this process."""
    from hydra.core.config_store import ConfigStore  # noqa: PLC0415 - loaded only to compose

    ConfigStore.instance().store(name=layout.name, node=layout.root, provider="rl-core")
