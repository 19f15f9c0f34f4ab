"""Writing a model as a Hugging Face folder: configuration, safetensors files, and what stood beside the original."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rl_core.contracts.weights import WeightBucket, WeightManifest
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedConfig

from rl_engine.weights import fill_buckets, spec_bytes

FILE_BYTES: Final = 5 * 10**9
"""Size of a weight file, as the Hub likes it."""

_COMPANIONS: Final = (".json", ".txt", ".model", ".jinja", ".py", ".tiktoken", ".spm")
"""Endings of tokenizer, processor, generation settings and model code."""


class HFWriter:
    """Takes a weight stream and writes it to a folder."""

    def __init__(self, directory: Path, manifest: WeightManifest, *, file_bytes: int = FILE_BYTES) -> None:
        """Plan which tensor goes to which file.

        Args:
            directory: made when it is not there.
            manifest: of the stream that will come.
            file_bytes: size of a file; a larger tensor has one to itself.
        """
        self._directory = directory
        files = fill_buckets(manifest.sent, file_bytes)
        self._names = [_file_name(number, len(files)) for number in range(len(files))]
        self._wanted = [[spec.name for spec in specs] for specs in files]
        self._total_bytes = sum(spec_bytes(spec) for spec in manifest.sent)
        self._held: dict[str, Tensor] = {}
        self._next = 0
        directory.mkdir(parents=True, exist_ok=True)

    def take(self, bucket: WeightBucket) -> None:
        """Keep a copy of the bucket's tensors, and write every file that is complete."""
        for part in bucket.slices:
            self._held[part.name] = part.tensor.detach().to("cpu", copy=True).contiguous()
        while self._next < len(self._wanted) and all(name in self._held for name in self._wanted[self._next]):
            tensors = {name: self._held.pop(name) for name in self._wanted[self._next]}
            save_file(tensors, self._directory / self._names[self._next], metadata={"format": "pt"})
            self._next += 1

    def finish(self, config: PreTrainedConfig, source: Path, chat_template: str | None = None) -> None:
        """Write the index of several weight files, the configuration, and copies of the source's other files.

        Args:
            config: of the model.
            source: folder whose tokenizer, processor and code belong to it.
            chat_template: replaces that of the source.

        Raises:
            RuntimeError: tensors of the manifest never came.
        """
        if self._next < len(self._wanted):
            lost = [name for names in self._wanted[self._next :] for name in names if name not in self._held]
            msg = f"the weight stream ended, but {len(lost)} tensors of its manifest never came: {lost[:3]}"
            raise RuntimeError(msg)
        if len(self._names) > 1:
            index = {
                "metadata": {"total_size": self._total_bytes},
                "weight_map": {
                    name: file for file, names in zip(self._names, self._wanted, strict=True) for name in names
                },
            }
            text = json.dumps(index, indent=2, sort_keys=True)
            (self._directory / "model.safetensors.index.json").write_text(text, encoding="utf-8")
        config.save_pretrained(self._directory)
        for file in companions(source):
            if chat_template is None or file.name != "chat_template.jinja":
                shutil.copyfile(file, self._directory / file.name)
        if chat_template is not None:
            (self._directory / "chat_template.jinja").write_text(chat_template, encoding="utf-8")


def companions(folder: Path) -> Iterable[Path]:
    """Files of a model folder that are neither weights nor its configuration."""
    for file in sorted(folder.iterdir()):
        is_weights = file.name.endswith(".index.json")
        if file.is_file() and file.suffix in _COMPANIONS and file.name != "config.json" and not is_weights:
            yield file


def copy_model_settings(model: Path, directory: Path) -> None:
    """Bring along what belongs to a model rather than to its tokenizer, where the latter came from another folder.

    Generation settings, settings of a processor, and code: files that ``directory`` has already stay.
    """
    for file in companions(model):
        is_settings = file.name == "generation_config.json" or file.name.endswith("processor_config.json")
        if (is_settings or file.suffix == ".py") and not (directory / file.name).exists():
            shutil.copyfile(file, directory / file.name)


def _file_name(number: int, count: int) -> str:
    return "model.safetensors" if count == 1 else f"model-{number + 1:05d}-of-{count:05d}.safetensors"
