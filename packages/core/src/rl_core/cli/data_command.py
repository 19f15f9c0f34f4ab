"""``rl data show FILE ...``: rows as the model sees them, and what training would refuse."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from rl_core.cli.data_report import Report, report_text
from rl_core.cli.paint import Paint
from rl_core.cli.text import require_choice
from rl_core.config.compose import compose_leniently, join_errors
from rl_core.config.layout import PPO, RM, SFT
from rl_core.config.overrides import parse_overrides
from rl_core.data.files import read_files
from rl_core.data.survey import (
    CONVERSATIONS,
    KINDS,
    PAIRS,
    PROMPTS,
    SurveyedRow,
    kind_of,
    survey_conversations,
    survey_pairs,
    survey_prompts,
)
from rl_core.data.tokenizer import folder_tokenizer, model_tokenizer
from rl_core.errors import ConfigError, PluginError, PluginNotFoundError
from rl_core.plugins import get_registry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_core.config.layout import Layout
    from rl_core.plugins import Registry

_USAGE: Final = "rl data show FILE [FILE ...] [--model PATH] [--rows N] [KEY=VALUE ...]"
_LAYOUTS: Final = {PROMPTS: PPO, CONVERSATIONS: SFT, PAIRS: RM}
_SURVEYS: Final[dict[str, Callable[[Any, Any, Any | None], Iterator[SurveyedRow]]]] = {
    PROMPTS: survey_prompts,
    CONVERSATIONS: survey_conversations,
    PAIRS: survey_pairs,
}


def main(argv: Sequence[str]) -> int:
    """Run ``rl data``; returns 0 when training would take every row, 2 otherwise."""
    arguments = list(argv)
    if arguments and not arguments[0].startswith("-"):
        require_choice("rl data", arguments[0], ("show",))
    parser = argparse.ArgumentParser(prog="rl data", description="Look at data before a run does.", usage=_USAGE)
    parser.add_argument("command", choices=["show"], help="print rows as the model sees them, and a summary of all")
    parser.add_argument("files", nargs="+", metavar="FILE", help="parquet, json, jsonl or hf://owner/name:config/split")
    parser.add_argument("--model", metavar="PATH", help="whose template and tokenizer; without one no token is counted")
    parser.add_argument("--rows", type=int, default=3, metavar="N", help="how many are printed (3); all are looked at")
    parser.add_argument("--full", action="store_true", help="print long rows to the end")
    parser.add_argument("--kind", choices=KINDS, help="what the rows are; told from the first one if not given")
    parser.add_argument("--color", choices=["auto", "always", "never"], default="auto", help="auto: in a terminal")
    options = parser.parse_intermixed_args(arguments)
    files = [word for word in options.files if not _is_override(word)]
    overrides = [word for word in options.files if _is_override(word)]
    if not files:
        msg = f"no file is given.\n  usage: {_USAGE}"
        raise ConfigError(msg)
    registry = get_registry()
    kind = options.kind
    if kind is None:
        first = next(row for file in read_files(files) for row in file.rows)
        kind = kind_of(first, _value_of(overrides, "data.prompt_key") or "prompt")
    layout = _LAYOUTS[kind]
    tree = _composed(overrides, layout, registry)
    tokenizer = _tokenizer(tree, layout, registry, options.model)
    rows = list(_SURVEYS[kind](files, tree.data, tokenizer))
    rewards, chosen = _rewards(tree, registry) if kind == PROMPTS else (None, None)
    report = Report(
        kind=kind,
        files=files,
        rows=rows,
        data=tree.data,
        tokenizer=tokenizer,
        rewards=rewards,
        chosen=chosen,
    )
    paint = Paint.of(sys.stdout, options.color)
    print(report_text(report, paint, shown=max(options.rows, 0), is_full=options.full))
    return 2 if report.refusals() else 0


def _is_override(word: str) -> bool:
    key, sign, _ = word.partition("=")
    return bool(sign) and all(part.isidentifier() for part in key.lstrip("+~").split("."))


def _value_of(overrides: Sequence[str], key: str) -> str | None:
    return next((word.partition("=")[2] for word in overrides if word.partition("=")[0] == key), None)


def _composed(overrides: Sequence[str], layout: Layout, registry: Registry) -> Any:
    """The configuration as far as it goes: what is wrong with parts that rows do not need is not this command's."""
    composition = compose_leniently(overrides, registry=registry, layout=layout)
    keys = [override.key for override in parse_overrides(overrides)[0] if override.key]
    errors = [
        error
        for error in composition.errors
        if composition.config is None or (not isinstance(error, PluginError) and any(key in str(error) for key in keys))
    ]
    if errors or composition.config is None:
        raise join_errors(errors)
    return composition.config.tree


def _tokenizer(tree: Any, layout: Layout, registry: Registry, path: str | None) -> Any | None:
    """The tokenizer that a run would use; None where no model is named."""
    is_ppo = layout is PPO
    model = tree.actor_rollout_ref.model if is_ppo else tree.model
    strategy = tree.actor_rollout_ref.actor.strategy if is_ppo else tree.engine.strategy
    path = path or (tree.data.tokenizer if is_ppo else None) or model.tokenizer_path or model.path
    if path is None:
        return None
    section = "actor_rollout_ref.model" if is_ppo else "model"
    try:
        return model_tokenizer(model, strategy, registry, path=path, section=section)
    except PluginNotFoundError:  # a machine for looking at data need not have the backend
        return folder_tokenizer(model, path=path, section=section)


def _rewards(tree: Any, registry: Registry) -> tuple[Registry | None, str | None]:
    """Where rewards are found, and which of them scores every row; see ``Report``."""
    function = tree.custom_reward_function
    if function.path is not None or tree.reward_model.enable:
        return None, None
    return registry, function.name if function.name in registry.names("reward") else None
