"""Sizes of a model from its ``config.json`` and the headers of its safetensors files; no weight is read, no torch is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

from rl_core.errors import ConfigError

_PLAIN_MLP: Final = frozenset({"gpt2", "gpt_neox", "opt", "phi", "starcoder2", "bloom", "falcon"})
"""Model types whose blocks have two matrices where others have a gate as well."""
_HEAD_NORMS: Final = ("qwen3", "gemma3", "olmo2")
"""Beginnings of model types that normalise queries and keys."""
_UNTIED: Final = frozenset(
    {"llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "phi", "phi3", "gpt_neox"}
)
"""Model types whose output layer is a matrix of its own where the configuration does not say."""
_HEAD_NAME: Final = "lm_head.weight"
_LONGEST_HEADER: Final = 100 * 2**20


@dataclass(frozen=True)
class ModelShape:
    """A decoder.

    Attributes:
        hidden: width of the hidden states.
        inner: width of the multi-layer perceptrons that a token meets in a block, all its experts together.
        layers: blocks.
        heads: attention heads.
        kv_heads: key-value heads.
        head_dim: width of a head.
        vocabulary: rows of the output layer.
        parameters: of the whole language model, tied ones once.
        is_tied: whether embedding and output layer are one matrix.
        has_gate: whether the perceptrons have a gate.
        has_head_norms: whether queries and keys are normalised.
        experts_per_token: experts a token is sent to; 0 for a dense model.
        window: tokens that windowed layers keep; None without such layers.
        windowed_layers: number of those.
        positions: longest sequence; None where the configuration does not say.
    """

    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    parameters: int
    is_tied: bool = True
    has_gate: bool = True
    has_head_norms: bool = False
    experts_per_token: int = 0
    window: int | None = None
    windowed_layers: int = 0
    positions: int | None = None

    @property
    def head(self) -> int:
        """Parameters of the output layer."""
        return self.vocabulary * self.hidden

    @property
    def root(self) -> int:
        """Parameters outside of the blocks: embedding, last norm, output layer."""
        return self.head * (1 if self.is_tied else 2) + self.hidden

    @property
    def block(self) -> int:
        """Parameters of one block, on average."""
        return max(0, self.parameters - self.root) // self.layers

    @property
    def query_width(self) -> int:
        """Numbers of a token's queries in a block."""
        return self.heads * self.head_dim

    @property
    def key_width(self) -> int:
        """Numbers of a token's keys in a block."""
        return self.kv_heads * self.head_dim


def read_shape(section: Any) -> ModelShape:
    """The shape of the model of a ``model`` section: a folder, or a snapshot in the Hub cache. Nothing is downloaded.

    Raises:
        ConfigError: there is no readable ``config.json``, or it is not that of a decoder.
    """
    folder = _folder(getattr(section, "path", None))
    source = getattr(section, "hf_config_path", None)
    config = _read_json((_folder(source) if source else folder) / "config.json")
    config.update(getattr(section, "override_config", None) or {})
    try:
        return shape_of(config, parameters=count_parameters(folder, is_tied=_is_tied(config)))
    except (KeyError, TypeError, ZeroDivisionError) as error:
        msg = f"the configuration in {folder} does not say how large the model is ({error!r} is missing or unusable)"
        raise ConfigError(msg) from error


def shape_of(config: Mapping[str, Any], parameters: int | None = None) -> ModelShape:
    """The shape that a configuration, as ``config.json`` has it, describes.

    Args:
        config: the entries; of a multi-modal model the language model's part is taken.
        parameters: counted elsewhere; None counts a Llama-like decoder.

    Raises:
        KeyError: a size is missing.
    """
    text = config.get("text_config") or config
    kind = str(text.get("model_type", ""))
    hidden, heads = int(text["hidden_size"]), int(text["num_attention_heads"])
    head_dim = int(text.get("head_dim") or hidden // heads)
    kinds = text.get("layer_types") or []
    experts = int(text.get("num_experts_per_tok") or 0) if _num_experts(text) else 0
    has_gate = kind not in _PLAIN_MLP
    window = text.get("sliding_window") if "sliding_attention" in kinds else None
    partial = ModelShape(
        hidden=hidden,
        inner=_inner(text, experts),
        layers=int(text["num_hidden_layers"]),
        heads=heads,
        kv_heads=int(text.get("num_key_value_heads") or heads),
        head_dim=head_dim,
        vocabulary=int(text["vocab_size"]),
        parameters=0,
        is_tied=_is_tied(config),
        has_gate=has_gate,
        has_head_norms=kind.startswith(_HEAD_NORMS),
        experts_per_token=experts,
        window=None if window is None else int(window),
        windowed_layers=kinds.count("sliding_attention") if window is not None else 0,
        positions=text.get("max_position_embeddings"),
    )
    counted = _closed_form(partial, text) if parameters is None else parameters
    return ModelShape(**{**vars(partial), "parameters": counted})


def count_parameters(folder: Path, *, is_tied: bool) -> int | None:
    """Numbers in the safetensors files of ``folder``, from their headers; None where there are none.

    Args:
        folder: of the model.
        is_tied: leave an output layer out that is stored beside the embedding it is tied to.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        return None
    total = 0
    for file in files:
        with file.open("rb") as stream:
            size = int.from_bytes(stream.read(8), "little")
            if not 0 < size <= _LONGEST_HEADER:
                return None
            header = json.loads(stream.read(size))
        for name, entry in header.items():
            if name != "__metadata__" and not (is_tied and name == _HEAD_NAME):
                total += prod(entry["shape"])
    return total


def _folder(path: Any) -> Path:
    if not path:
        msg = "no model path is set"
        raise ConfigError(msg)
    folder = Path(str(path)).expanduser()
    if folder.is_dir():
        return folder
    # Loads no torch, but is not needed for a folder.
    from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415
    from huggingface_hub.errors import HFValidationError  # noqa: PLC0415

    try:
        cached = try_to_load_from_cache(str(path), "config.json")
    except HFValidationError as error:
        msg = f"there is no folder {path}, nor can the Hub have a model of that name"
        raise ConfigError(msg) from error
    if not isinstance(cached, str):
        msg = f"there is no folder {path}, and the Hub cache does not hold a model of that name"
        raise ConfigError(msg)
    return Path(cached).parent


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        msg = f"{path} cannot be read: {error}"
        raise ConfigError(msg) from error
    return found


def _is_tied(config: Mapping[str, Any]) -> bool:
    # transformers ties unless a configuration says otherwise; newer ones say it in the text part.
    text = config.get("text_config") or {}
    return bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", _default_tie(config))))


def _default_tie(config: Mapping[str, Any]) -> bool:
    return str(config.get("model_type", "")) not in _UNTIED


def _num_experts(text: Mapping[str, Any]) -> int:
    return next(
        (int(text[key]) for key in ("num_experts", "num_local_experts", "n_routed_experts") if text.get(key)), 0
    )


def _expert_width(text: Mapping[str, Any]) -> int:
    return int(text.get("moe_intermediate_size") or text["intermediate_size"])


def _inner(text: Mapping[str, Any], experts_per_token: int) -> int:
    if not experts_per_token:
        return int(text.get("intermediate_size") or 4 * text["hidden_size"])
    return experts_per_token * _expert_width(text) + int(text.get("shared_expert_intermediate_size") or 0)


def _closed_form(shape: ModelShape, text: Mapping[str, Any]) -> int:
    hidden, matrices = shape.hidden, 3 if shape.has_gate else 2
    attention = hidden * (2 * shape.query_width + 2 * shape.key_width)
    if text.get("attention_bias") or str(text.get("model_type", "")).startswith("qwen2"):
        attention += shape.query_width + 2 * shape.key_width
    if shape.has_head_norms:
        attention += 2 * shape.head_dim
    if experts := _num_experts(text):
        width = experts * _expert_width(text) + int(text.get("shared_expert_intermediate_size") or 0)
        mlp = matrices * hidden * width + hidden * experts
    else:
        mlp = matrices * hidden * shape.inner
    return shape.layers * (attention + mlp + 2 * hidden) + shape.root
