"""Which arguments a reward function wants: read from its signature once, before anything is scored."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rl_core.errors import ConfigError

ALWAYS: Final = ("data_source", "solution_str", "ground_truth", "extra_info")
"""What a function with ``**arguments`` gets."""
ON_DEMAND: Final = ("prompt_str", "raw_prompt", "response_ids", "response_length", "uid", "num_turns")
"""What a function gets that names it."""
OFFERED: Final = ALWAYS + ON_DEMAND
PLURAL: Final[Mapping[str, str]] = {
    "extra_infos": "extra_info",
    "response_ids_list": "response_ids",
    **{f"{name}s": name for name in OFFERED if name not in ("extra_info", "response_ids", "num_turns")},
    "num_turns_list": "num_turns",
}
"""Name of the list -> what it is a list of."""


@dataclass(frozen=True, slots=True)
class Call:
    """How a function is called.

    Attributes:
        names: argument of the function -> name in ``OFFERED``.
        is_batched: once for many rows, with lists.
    """

    names: Mapping[str, str]
    is_batched: bool


def read_call(function: Callable[..., Any], reward_kwargs: Mapping[str, Any], what: str) -> Call:
    """How ``function`` is to be called.

    Args:
        function: the reward function itself.
        reward_kwargs: arguments that the configuration gives it.
        what: names the function in messages.

    Raises:
        ConfigError: it needs an argument that nobody has, or is given one that it does not take.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return Call({name: name for name in ALWAYS}, is_batched=False)  # a builtin says nothing: the contract holds
    named = {item.name: item for item in parameters if item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY)}
    takes_any = any(item.kind is item.VAR_KEYWORD for item in parameters)
    is_batched = "solution_strs" in named or (
        "solution_str" not in named and bool(set(named) & set(PLURAL) - {"num_turns"})
    )
    offered = PLURAL if is_batched else {name: name for name in OFFERED}
    fixed = [item.name for item in parameters if item.kind is item.POSITIONAL_ONLY and item.default is item.empty]
    unknown = [
        name
        for name, item in named.items()
        if item.default is item.empty and name not in offered and name not in reward_kwargs
    ]
    if unknown or fixed:
        msg = (
            f"{what} needs {', '.join(map(repr, unknown + fixed))}, which no reward function is given. By keyword there are "
            f"{', '.join(offered)}; give anything else a default, or a value in custom_reward_function.reward_kwargs."
        )
        raise ConfigError(msg)
    untaken = sorted(set(reward_kwargs) - set(named)) if not takes_any else []
    if untaken:
        msg = (
            f"custom_reward_function.reward_kwargs has {', '.join(map(repr, untaken))}, which {what} does not take; it takes "
            f"{', '.join(named)}"
        )
        raise ConfigError(msg)
    always = PLURAL if is_batched else dict.fromkeys(ALWAYS)
    every = {name for name in offered if name in always and offered[name] in ALWAYS} if takes_any else set()
    wanted = [name for name in offered if (name in named or name in every) and name not in reward_kwargs]
    return Call({name: offered[name] for name in wanted}, is_batched)
