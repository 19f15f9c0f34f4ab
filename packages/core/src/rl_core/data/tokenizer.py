"""The tokenizer of the model that is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rl_core.errors import ConfigError

if TYPE_CHECKING:
    from rl_core.config import ModelConfig
    from rl_core.plugins import Registry


def model_tokenizer(model: ModelConfig, strategy: str, registry: Registry, *, path: str | None, section: str) -> Any:
    """The backend's own tokenizer where it has a loader, otherwise that of the model's folder.

    Args:
        model: the model's section.
        strategy: name of the backend.
        registry: plugins.
        path: folder or hub name of the tokenizer.
        section: path of ``model`` in the configuration, for messages.

    Raises:
        ConfigError: there is none.
    """
    loader = registry.load_tokenizer(strategy)
    if loader is not None:
        return loader(path, trust_remote_code=model.trust_remote_code, chat_template=model.custom_chat_template)
    return folder_tokenizer(model, path=path, section=section)


def folder_tokenizer(model: ModelConfig, *, path: str | None, section: str) -> Any:
    """The tokenizer of a model's folder; arguments as for ``model_tokenizer``.

    Raises:
        ConfigError: there is none.
    """
    from transformers import AutoTokenizer  # noqa: PLC0415 - heavy, and backends may bring their own

    try:
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=model.trust_remote_code)
    except (OSError, ValueError) as error:
        msg = f"no tokenizer in {path!r}: {error}. Set {section}.tokenizer_path to a folder that has one"
        raise ConfigError(msg) from error
    if model.custom_chat_template is not None:
        tokenizer.chat_template = model.custom_chat_template
    return tokenizer
