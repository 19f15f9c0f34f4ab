"""An engine's model as a Hugging Face folder: every rank streams, rank 0 writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rl_core.contracts.engine import EngineRole
from rl_core.errors import CheckpointError
from safetensors import SafetensorError
from transformers import PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES

from rl_engine.export import HFWriter, copy_model_settings
from rl_engine.models import load_config, resolve_folder
from rl_engine.token_model import PolicyModel
from rl_engine.value_head import ValueModel

if TYPE_CHECKING:
    from rl_engine.base_engine import HFTrainingEngine

_BUCKET_BYTES: Final = 512 * 2**20


def export_engine(engine: HFTrainingEngine, directory: Path) -> None:
    """Write the model of ``engine`` below ``directory``. Collective.

    Raises:
        CheckpointError: rank 0 could not write; raised on every rank.
    """
    problem: str | None = None
    writer: HFWriter | None = None
    stream = engine.named_weights(_BUCKET_BYTES)
    try:
        if engine.context.rank == 0:
            writer = HFWriter(directory, engine.weight_manifest())
    except OSError as error:
        problem = str(error)
    for bucket in stream:
        # A rank that cannot write still drains the stream: its peers are in the same collectives.
        if writer is not None and problem is None:
            problem = _attempt(writer.take, bucket)
    if writer is not None and problem is None:
        section = engine.model_config
        source = resolve_folder(getattr(section, "tokenizer_path", None) or section.path)
        template = getattr(section, "custom_chat_template", None)
        problem = _attempt(writer.finish, exported_config(engine), source, template)
        if problem is None:
            problem = _attempt(copy_model_settings, resolve_folder(section.path), directory)
    problem = engine.context.collective.broadcast_object(problem)
    if problem is not None:
        msg = (
            f"the {engine.role} model could not be exported to {directory}: {problem}. Check room and permissions there"
        )
        raise CheckpointError(msg)


def exported_config(engine: HFTrainingEngine) -> PreTrainedConfig:
    """The configuration under which transformers reads the export: weights as they are sent, dropout as it was."""
    module = engine.module("export_hf")
    config = load_config(engine.model_config, for_training=False)
    config.dtype = engine.compute_dtype
    if isinstance(module, PolicyModel):
        config.architectures = [type(module.causal_lm).__name__]
    elif engine.role in (EngineRole.VALUE, EngineRole.REWARD):
        fallback = f"{type(module.backbone).__name__.removesuffix('Model')}ForSequenceClassification"
        names: Any = MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES
        config.architectures = [names.get(config.model_type, fallback)]
        config.num_labels = 1
        if isinstance(module, ValueModel) and module.pad_token_id is not None:
            config.get_text_config().pad_token_id = module.pad_token_id
    return config


def _attempt(action: Any, *arguments: Any) -> str | None:
    """What went wrong with the file system, as text for the other ranks."""
    try:
        action(*arguments)
    except (OSError, SafetensorError) as error:
        return f"{type(error).__name__}: {error}"
    return None
