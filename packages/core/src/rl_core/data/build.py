"""The data sets and the loader of a run: which class, which seed, which order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rl_core.data.loader import PromptLoader
from rl_core.data.prompts import PromptDataset
from rl_core.errors import ConfigError, DataError
from rl_core.plugins.from_file import load_from_file

if TYPE_CHECKING:
    from rl_core.config import DataConfig

CUSTOM: Final = "data.custom_cls"


def train_prompts(data: DataConfig, tokenizer: Any) -> PromptDataset:
    """The training prompts; with ``data.shuffle``, ``data.train_max_samples`` of them are drawn at random.

    Raises:
        ConfigError: the class of ``data.custom_cls`` cannot be used, or a file with tools.
        DataError: a row cannot be used.
    """
    seed = data.seed if data.shuffle else None
    return _dataset_class(data)(data.train_files, data, tokenizer, max_samples=data.train_max_samples, seed=seed)


def val_prompts(data: DataConfig, tokenizer: Any) -> PromptDataset:
    """The validation prompts, in random order with ``data.validation_shuffle``.

    Raises:
        ConfigError: the class of ``data.custom_cls`` cannot be used, or a file with tools.
        DataError: a row cannot be used.
    """
    dataset = _dataset_class(data)(data.val_files, data, tokenizer, max_samples=data.val_max_samples)
    if data.validation_shuffle:
        order = np.random.default_rng([data.seed or 0, len(dataset)]).permutation(len(dataset))
        dataset.items = [dataset.items[row] for row in order]
    return dataset


def prompt_loader(data: DataConfig, dataset: PromptDataset, *, batch_size: int, epochs: int, seed: int) -> PromptLoader:
    """Draws the training prompts; in the proportions of ``data.train_files_weights`` where these are given.

    Args:
        data: the ``data`` section.
        dataset: the training prompts.
        batch_size: prompts of one draw.
        epochs: passes over the data set; with weights, as many draws as these would have.
        seed: of the order.

    Raises:
        ConfigError: the data set has fewer rows than one batch, or the weights do not fit the files.
    """
    weights = data.train_files_weights
    mixture = None if weights is None else dataset.mixture(weights)
    return PromptLoader(dataset, batch_size=batch_size, epochs=epochs, shuffle=data.shuffle, seed=seed, mixture=mixture)


class CustomPrompts(PromptDataset):
    """Prompts that a class from a file makes: checked, and completed to what the trainer reads of a ``PromptDataset``."""

    def __init__(self, made: Any, name: str, config: DataConfig) -> None:
        """Take every item.

        Args:
            made: an instance of the class, with ``len()``, ``[]`` and perhaps ``num_filtered`` and ``num_truncated``.
            name: of the class and its file, for messages.
            config: the ``data`` section.

        Raises:
            ConfigError: it has no length or no items, or weights are given for the files that only it knows.
            DataError: an item has no ``prompt_ids`` within ``data.max_prompt_length``.
        """
        if not (hasattr(made, "__len__") and hasattr(made, "__getitem__")):
            msg = f"{CUSTOM}: {name} must have __len__ and __getitem__, where item n is a dict with prompt_ids"
            raise ConfigError(msg)
        if config.train_files_weights is not None:
            msg = f"data.train_files_weights is given, but {name} decides itself how its rows are mixed: leave it null"
            raise ConfigError(msg)
        self._config = config
        self.num_filtered = int(getattr(made, "num_filtered", 0))
        self.num_truncated = int(getattr(made, "num_truncated", 0))
        self._num_hidden_tools = self._num_without_bos = 0
        self.items = [_completed(name, row, made[row], config) for row in range(len(made))]
        if not self.items:
            msg = f"{CUSTOM}: {name} has no items: nothing to train on"
            raise DataError(msg)


def _dataset_class(data: DataConfig) -> Any:
    custom = data.custom_cls
    if custom.path is None:
        return PromptDataset
    if custom.name is None:
        msg = f"{CUSTOM}.path is {custom.path}, but .name is null; give the name of the class in it"
        raise ConfigError(msg)
    found = load_from_file(Path(custom.path), custom.name, CUSTOM)
    if isinstance(found, type) and issubclass(found, PromptDataset):
        return found

    def make(files: Any, config: DataConfig, tokenizer: Any, *, max_samples: int, seed: int | None = None) -> Any:
        made = found(files, config, tokenizer, max_samples=max_samples)
        return CustomPrompts(made, f"{custom.name} of {custom.path}", config)

    return make


def _completed(name: str, row: int, item: Any, config: DataConfig) -> dict[str, Any]:
    ids = item.get("prompt_ids") if isinstance(item, Mapping) else None
    if not _are_ids(ids) or not ids:
        msg = f"{CUSTOM}: item {row} of {name} must be a dict with prompt_ids, a list of token ids; found {item!r:.200}"
        raise DataError(msg)
    if len(ids) > config.max_prompt_length:
        msg = (
            f"{CUSTOM}: item {row} of {name} has {len(ids)} prompt_ids, data.max_prompt_length is "
            f"{config.max_prompt_length}. Raise it, or cut or leave out such prompts in the class"
        )
        raise DataError(msg)
    return {"data_source": None, "index": row, "raw_prompt": None} | dict(item) | {"prompt_ids": [int(n) for n in ids]}


def _are_ids(value: Any) -> bool:
    is_sequence = isinstance(value, Iterable) and hasattr(value, "__len__") and not isinstance(value, str | bytes)
    return is_sequence and all(hasattr(number, "__index__") for number in value)
