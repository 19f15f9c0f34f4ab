"""An engine's adapters as a PEFT folder: every rank streams, rank 0 writes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rl_core.errors import CheckpointError
from safetensors import SafetensorError
from torch import Tensor

from rl_engine.experts import expert_names
from rl_engine.export import companions
from rl_engine.lora.files import adapter_config, shortest_targets, write_adapter
from rl_engine.models import resolve_folder
from rl_engine.token_model import PolicyModel

if TYPE_CHECKING:
    from peft import LoraConfig

    from rl_engine.base_engine import HFTrainingEngine
    from rl_engine.lora.adapter import Adapter

_BUCKET_BYTES: Final = 512 * 2**20


def export_adapter(engine: HFTrainingEngine, adapter: Adapter, directory: Path) -> None:
    """Write the adapters of ``engine`` below ``directory``, with the base model's tokenizer. Collective.

    Raises:
        CheckpointError: rank 0 could not write; raised on every rank.
    """
    tensors: dict[str, Tensor] = {}
    for bucket in engine.named_weights(_BUCKET_BYTES, "adapter"):
        if engine.context.rank == 0:
            tensors |= {part.name: part.tensor.detach().to("cpu", copy=True).contiguous() for part in bucket.slices}
    problem: str | None = None
    if engine.context.rank == 0:
        try:
            write_adapter(directory, exported_config(engine, adapter), tensors)
            section: Any = engine.model_config
            for file in companions(resolve_folder(getattr(section, "tokenizer_path", None) or section.path)):
                shutil.copyfile(file, directory / file.name)
        except (OSError, SafetensorError) as error:
            problem = f"{type(error).__name__}: {error}"
    problem = engine.context.collective.broadcast_object(problem)
    if problem is not None:
        msg = f"the adapters of the {engine.role} model could not be exported to {directory}: {problem}"
        raise CheckpointError(msg)


def exported_config(engine: HFTrainingEngine, adapter: Adapter) -> LoraConfig:
    """PEFT's configuration of an engine's adapters, as its files and generation engines have it."""
    module = engine.module("export of adapters")
    # PEFT would take a name that ends like an expert's for one.
    names = [module.checkpoint_name(name) for name, _ in module.named_modules()] + expert_names(module.file_form)
    return adapter_config(
        adapter.settings,
        targets=shortest_targets(adapter.layer_names, [name for name in names if name]),
        task_type="CAUSAL_LM" if isinstance(module, PolicyModel) else "SEQ_CLS",
        base_model_name_or_path=engine.model_config.path,
        fan_in_fan_out=adapter.has_transposed,
        modules_to_save=list(adapter.whole_names) or None,
        inference_mode=True,
    )
