"""The data set of prompts: rows of files, rendered, checked and counted before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from rl_core.data.files import Place, Row, read_files
from rl_core.data.media import COLUMN as MEDIA
from rl_core.data.mixing import Mixture, mixture_of
from rl_core.data.parallel import map_rows
from rl_core.data.prompt_row import PASSED_ON, RAW_IDS, TOOLS, PromptRow, PromptRowEncoder
from rl_core.data.tools import configured_tools
from rl_core.errors import DataError

if TYPE_CHECKING:
    from rl_core.config import DataConfig

_OPTIONAL: Final[tuple[tuple[str, dict[str, Any] | None], ...]] = ((TOOLS, None), (MEDIA, {}))
"""Columns that all items have as soon as one has them, and what stands there for the others."""


class _Task(NamedTuple):
    """A row and where it came from."""

    place: Place
    row: Row
    number: int
    """Over all files."""

    source: int


class PromptDataset:
    """Rows of ``data.train_files`` or ``data.val_files``, rendered and checked before anything is trained.

    An item holds ``prompt_ids`` (list of int), ``raw_prompt`` and the columns of ``PASSED_ON``; where any row has them also
    ``tools`` (schemas, as the template got them), ``multi_modal_data`` (kind -> handles) and ``raw_prompt_ids``.

    Attributes:
        num_filtered: rows left out because their prompt is too long.
        num_truncated: rows whose prompt was cut.
    """

    def __init__(
        self,
        files: Any,
        config: DataConfig,
        tokenizer: Any,
        *,
        max_samples: int = -1,
        seed: int | None = None,
        media: frozenset[str] = frozenset(),
    ) -> None:
        """Read and check every row.

        Args:
            files: a path or several; also ``hf://`` names.
            config: the ``data`` section.
            tokenizer: of the policy; needs ``encode`` and, for chat rows, ``apply_chat_template``.
            max_samples: rows that are used; -1 uses all.
            seed: which rows these are, drawn at random; None takes the first.
            media: what the model takes beside text: of ``image``, ``video``, ``audio``.

        Raises:
            ConfigError: a file with tools cannot be used.
            DataError: a file cannot be used, a row has no prompt, or one is too long and ``data.truncation`` is ``error``.
        """
        self._config = config
        tools = configured_tools(config.tool_config_path, config.function_tool_path)
        render = _Render(PromptRowEncoder(config, tokenizer, tools=tools, media=media))
        found = read_files(files)
        self._files = [file.name for file in found]
        rows = [
            (Place(file.name, n), row, source) for source, file in enumerate(found) for n, row in enumerate(file.rows)
        ]
        chosen = _chosen(len(rows), max_samples, seed)
        tasks = [_Task(place, row, index, source) for index in chosen for place, row, source in [rows[index]]]
        self.num_filtered = self.num_truncated = self._num_hidden_tools = self._num_without_bos = 0
        self.items: list[dict[str, Any]] = []
        self._sizes = [0] * len(found)
        for task, done in zip(tasks, map_rows(render, tasks, config.filter_overlong_prompts_workers), strict=True):
            self._take(task, done)
        if not self.items:
            msg = (
                f"all {len(tasks)} prompts are longer than data.max_prompt_length ({config.max_prompt_length} tokens) "
                "and were filtered; raise it"
            )
            raise DataError(msg)
        for name, absent in _OPTIONAL:
            if any(name in item for item in self.items):
                for item in self.items:
                    item.setdefault(name, absent)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.items[index]

    def data_sources(self) -> dict[str, int]:
        """Each ``data_source`` and the index of the first prompt that has it."""
        first: dict[str, int] = {}
        for item in self.items:
            first.setdefault(item["data_source"], item["index"])
        return first

    def mixture(self, weights: Sequence[float]) -> Mixture:
        """The files as sources that are drawn in proportion to ``weights``.

        Raises:
            ConfigError: there is not one positive weight for each file, or a file has no row left.
        """
        return mixture_of(self._files, self._sizes, weights)

    def notes(self, what: str) -> list[str]:
        """One line for each kind of row that is not used as it stands in the file.

        Args:
            what: which rows these are, for example ``training``.
        """
        config, total = self._config, len(self.items) + self.num_filtered
        limit = f"data.max_prompt_length ({config.max_prompt_length})"
        lines = []
        if self.num_filtered:
            lines.append(f"{self.num_filtered} of {total} {what} prompts are longer than {limit} and left out.")
        if self.num_truncated:
            lines.append(
                f"{self.num_truncated} of {total} {what} prompts are longer than {limit} and cut "
                f"(data.truncation={config.truncation})."
            )
        if self._num_hidden_tools:
            lines.append(
                f"{self._num_hidden_tools} of {total} {what} prompts have tools that do not show in the prompt: the chat "
                "template, or a prompt of plain text, has no place for them."
            )
        if self._num_without_bos:
            lines.append(
                f"{self._num_without_bos} of {total} {what} prompts do not begin with the token that the tokenizer begins "
                "texts with, because the chat template does not write it."
            )
        return lines

    def _take(self, task: _Task, done: PromptRow | DataError) -> None:
        if isinstance(done, DataError):
            raise task.place.refused(done) from done
        self._num_hidden_tools += done.hides_tools
        self._num_without_bos += done.lacks_bos
        if done.item is None:
            self.num_filtered += 1
            return
        self.num_truncated += done.num_tokens > len(done.item["prompt_ids"])
        self._sizes[task.source] += 1
        self.items.append(done.item)


def passed_columns(items: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Names of the object columns that travel with prompts.

    Args:
        items: of one data set, so that the first tells about all.
    """
    optional = (TOOLS, MEDIA, RAW_IDS)
    return ("raw_prompt", *PASSED_ON, *(name for name in optional if items and name in items[0]))


class _Render:
    """Renders tasks; an error is a result, so that the earliest row's is the one that is raised."""

    def __init__(self, encoder: PromptRowEncoder) -> None:
        self._encoder = encoder

    def __call__(self, task: _Task) -> PromptRow | DataError:
        try:
            return self._encoder.encode(task.place.number, task.row, task.number)
        except DataError as error:
            return error


def _chosen(num_rows: int, max_samples: int, seed: int | None) -> Sequence[int]:
    if not 0 <= max_samples < num_rows:
        return range(num_rows)
    if seed is None:
        return range(max_samples)
    # Sorted, so that rows of one file stay together.
    return sorted(np.random.default_rng([seed, num_rows]).choice(num_rows, max_samples, replace=False).tolist())
