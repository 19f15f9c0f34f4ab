"""From the ``model`` section of a run to a folder, a configuration, weights and a tokenizer.

A path is a folder, or a name on the Hugging Face Hub, which is looked up in the local cache first. Whatever is not there
is one error that says where it was looked for.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled
from rl_core.errors import ConfigError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoProcessor,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
from transformers.utils import logging as transformers_logging

_log = logging.getLogger(__name__)

_DTYPES: Final[Mapping[str, torch.dtype]] = {
    "float64": torch.float64,
    "fp64": torch.float64,
    "float32": torch.float32,
    "fp32": torch.float32,
    "bfloat16": torch.bfloat16,
    "bf16": torch.bfloat16,
    "float16": torch.float16,
    "fp16": torch.float16,
}
_PROCESSOR_FILES: Final = ("processor_config.json", "preprocessor_config.json")
_NETWORK_ERRORS: Final = (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, HFValidationError, OSError)


def dtype_by_name(name: str) -> torch.dtype:
    """A floating-point type by its torch name or its short one (``bf16``).

    Raises:
        ConfigError: no such type.
    """
    dtype = _DTYPES.get(name.removeprefix("torch."))
    if dtype is None:
        msg = f"there is no number format {name!r}; choose one of {', '.join(_DTYPES)}"
        raise ConfigError(msg)
    return dtype


def resolve_folder(path: str | None, what: str = "model") -> Path:
    """The folder that holds ``path``: itself, its snapshot in the Hub cache, or a fresh download into that cache.

    Args:
        path: folder, or name on the Hub.
        what: for messages: ``model``, ``tokenizer``.

    Raises:
        ConfigError: it is in neither place and cannot be fetched.
    """
    if not path:
        msg = f"no {what} was given; set the path of a folder that holds one, or a name on the Hugging Face Hub"
        raise ConfigError(msg)
    folder = Path(path).expanduser()
    if folder.is_dir():
        return folder
    try:
        return Path(snapshot_download(path, local_files_only=True))
    except _NETWORK_ERRORS:
        _log.info("%s %s is not in the Hub cache", what, path)
    try:
        return Path(snapshot_download(path))
    except _NETWORK_ERRORS as error:
        msg = (
            f"the {what} {path!r} was asked for. There is no such folder (looked at {folder.absolute()}), the Hub cache "
            f"{constants.HF_HUB_CACHE} does not hold it, and it could not be fetched ({_first_line(error)}). Give the "
            "path of a folder with config.json and safetensors files, or copy the snapshot into that cache"
        )
        raise ConfigError(msg) from error


def load_config(section: Any, folder: Path | None = None, *, for_training: bool = True) -> PreTrainedConfig:
    """The model's configuration with ``override_config`` applied.

    Args:
        section: the ``model`` section.
        folder: of the model; None resolves ``section.path``.
        for_training: switch off dropout that ``override_config`` does not ask for: with it, log-probs of the first pass
            would differ from the recomputed old ones, and the ratio would not be 1.

    Raises:
        ConfigError: there is no readable configuration, or an override names a field that it does not have.
    """
    if getattr(section, "external_lib", None):
        importlib.import_module(section.external_lib)
    own = getattr(section, "hf_config_path", None)
    source = resolve_folder(own, "model configuration") if own else folder or resolve_folder(section.path)
    with _explained(source, section):
        config: PreTrainedConfig = AutoConfig.from_pretrained(
            source, trust_remote_code=_trusts(section), local_files_only=True
        )
    overrides = dict(getattr(section, "override_config", None) or {})
    attention = overrides.pop("attn_implementation", None)
    for name, value in overrides.items():
        if not hasattr(config, name):
            msg = (
                f"model.override_config.{name} was given, but a {config.model_type!r} configuration ({source}) has no "
                f"such field; its fields are {', '.join(sorted(config.to_dict()))}"
            )
            raise ConfigError(msg)
        setattr(config, name, value)
    if for_training:
        _switch_dropout_off(config, overrides)
    if (
        attention is not None
    ):  # otherwise transformers takes torch's own kernels, and ``attention`` better ones for packs
        config._attn_implementation = attention
    elif getattr(config.get_text_config(), "attn_logit_softcapping", None):
        # Torch's kernels know no cap on scores; some versions of transformers take them all the same, and leave it out.
        config._attn_implementation = "eager"
    return config


def load_causal_lm(section: Any, dtype: torch.dtype, config: PreTrainedConfig | None = None) -> PreTrainedModel:
    """A causal language model with every weight from its files, on the CPU, in evaluation mode; it may read images too.

    Args:
        section: the ``model`` section.
        dtype: of the weights in memory.
        config: from ``load_config``; None loads it.

    Raises:
        ConfigError: files are missing or unreadable, or do not hold every weight of the model.
    """
    folder = resolve_folder(section.path)
    config = config or load_config(section, folder)
    with_images = type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
    auto_class = AutoModelForImageTextToText if with_images else AutoModelForCausalLM
    return load_pretrained(auto_class, folder, section, config, dtype)


def load_pretrained(
    auto_class: Any, folder: Path, section: Any, config: PreTrainedConfig, dtype: torch.dtype
) -> PreTrainedModel:
    """``auto_class.from_pretrained`` that refuses to make weights up; see ``load_causal_lm``."""
    with _explained(folder, section), _quietly():
        model, report = auto_class.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            attn_implementation=config._attn_implementation,
            trust_remote_code=_trusts(section),
            local_files_only=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    # All of these are refused below, with names; transformers would only log them and go on with random numbers.
    missing = sorted(report["missing_keys"])
    mismatched = sorted(
        f"{name}: {tuple(there)}, {tuple(here)} here" for name, there, here in report["mismatched_keys"]
    )
    if missing or mismatched:
        msg = (
            f"the files in {folder} do not fill a {type(model).__name__}: {len(missing)} weights are missing "
            f"({', '.join(missing[:3]) or 'none'}), {len(mismatched)} have another shape "
            f"({', '.join(mismatched[:3]) or 'none'}). Training on random weights is never what was meant: check "
            "model.path and model.override_config"
        )
        raise ConfigError(msg)
    loaded: PreTrainedModel = model
    return loaded.eval()


def load_tokenizer(
    path: str | None, *, trust_remote_code: bool = False, chat_template: str | None = None
) -> PreTrainedTokenizerBase:
    """The tokenizer in a folder or in the Hub cache.

    Args:
        path: folder, or name on the Hub.
        trust_remote_code: run Python code that comes with it.
        chat_template: text that replaces its chat template.

    Raises:
        ConfigError: there is none.
    """
    folder = resolve_folder(path, "tokenizer")
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            folder, trust_remote_code=trust_remote_code, local_files_only=True
        )
    except (OSError, ValueError) as error:
        msg = f"{folder} holds no tokenizer that can be loaded: {_first_line(error)}. Set model.tokenizer_path"
        raise ConfigError(msg) from error
    if len(tokenizer) < 2:  # for some model types transformers makes up an empty one where a folder holds none
        msg = f"{folder} holds no tokenizer. Set actor_rollout_ref.model.tokenizer_path to a folder that has one"
        raise ConfigError(msg)
    if chat_template is not None:
        tokenizer.chat_template = chat_template
    return tokenizer


def load_processor(path: str | None, *, trust_remote_code: bool = False) -> Any | None:
    """The processor of a multi-modal model; None for a folder that has none."""
    folder = resolve_folder(path, "processor")
    if not any((folder / name).is_file() for name in _PROCESSOR_FILES):
        return None
    return AutoProcessor.from_pretrained(folder, trust_remote_code=trust_remote_code, local_files_only=True)


def _trusts(section: Any) -> bool:
    return bool(getattr(section, "trust_remote_code", False))


def _switch_dropout_off(config: PreTrainedConfig, overrides: Mapping[str, Any]) -> None:
    for name, value in list(vars(config).items()):
        is_dropout = name.endswith(("dropout", "_pdrop"))
        if is_dropout and isinstance(value, float) and value > 0 and name not in overrides:
            _log.info(
                "%s: %s=%g is switched off; model.override_config.%s keeps it", config.model_type, name, value, name
            )
            setattr(config, name, 0.0)


@contextmanager
def _explained(folder: Path, section: Any) -> Iterator[None]:
    """Turn what transformers raises about a folder into one error with a way out."""
    try:
        yield
    except (OSError, ValueError, KeyError) as error:
        hint = "Check that the folder holds config.json and safetensors files of a causal language model"
        if "trust_remote_code" in str(error) and not _trusts(section):
            hint = "Set model.trust_remote_code=true if you trust the code that comes with it"
        msg = f"the model in {folder} cannot be loaded: {_first_line(error)}. {hint}"
        raise ConfigError(msg) from error


@contextmanager
def _quietly() -> Iterator[None]:
    """Every rank loads: bars and reports of all of them would be unreadable, and what matters is an error of ours."""
    if "TRANSFORMERS_VERBOSITY" in os.environ:
        yield
        return
    had_bars, verbosity = transformers_logging.is_progress_bar_enabled(), transformers_logging.get_verbosity()
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if had_bars:
            transformers_logging.enable_progress_bar()


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]
