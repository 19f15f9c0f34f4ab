"""The data set of prompts: one row of a file becomes token ids and the columns that rewards need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rl_core.data.files import Row, read_rows
from rl_core.errors import DataError

if TYPE_CHECKING:
    from rl_core.config import DataConfig

PASSED_ON = ("data_source", "reward_model", "extra_info", "agent_name", "index", "ability", "tools_kwargs")
"""Columns that travel with a prompt, each None where a row lacks it."""


class PromptDataset:
    """Rows of ``data.train_files`` or ``data.val_files``, rendered and checked before anything is trained."""

    def __init__(self, files: Any, config: DataConfig, tokenizer: Any, *, max_samples: int = -1) -> None:
        """Read and check every row.

        Args:
            files: a path or several.
            config: the ``data`` section.
            tokenizer: of the policy; needs ``encode`` and, for chat rows, ``apply_chat_template``.
            max_samples: first rows that are used; -1 uses all.

        Raises:
            DataError: a file cannot be used, a row has no prompt, or one is too long and ``data.truncation`` is ``error``.
        """
        self._config = config
        self._tokenizer = tokenizer
        rows = read_rows(files)
        if max_samples >= 0:
            rows = rows[:max_samples]
        self.num_filtered = 0
        self.items: list[dict[str, Any]] = []
        for index, row in enumerate(rows):
            item = self._item(index, row)
            if item is None:
                self.num_filtered += 1
            else:
                self.items.append(item)
        if not self.items:
            msg = (
                f"all {len(rows)} prompts are longer than data.max_prompt_length ({config.max_prompt_length} tokens) "
                "and were filtered; raise it"
            )
            raise DataError(msg)

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

    def _item(self, index: int, row: Row) -> dict[str, Any] | None:
        key = self._config.prompt_key
        if key not in row:
            msg = f"row {index} has no column {key!r} (data.prompt_key); it has {', '.join(sorted(row))}"
            raise DataError(msg)
        if row.get("reward_model") is not None and not isinstance(row["reward_model"], dict):
            msg = f"row {index}: reward_model is {row['reward_model']!r}; it must be a dict with ground_truth"
            raise DataError(msg)
        prompt_ids = self._encode(index, row[key])
        if not prompt_ids:
            msg = f"row {index}: the prompt {row[key]!r} has no tokens"
            raise DataError(msg)
        limit = self._config.max_prompt_length
        if len(prompt_ids) > limit:
            if self._config.filter_overlong_prompts:
                return None
            prompt_ids = self._truncate(index, prompt_ids, limit)
        return (
            {"prompt_ids": prompt_ids, "raw_prompt": row[key]}
            | {name: row.get(name) for name in PASSED_ON if name != "index"}
            | {"index": row["index"] if row.get("index") is not None else index}
        )

    def _encode(self, index: int, prompt: Any) -> list[int]:
        if isinstance(prompt, str):
            return list(self._tokenizer.encode(prompt))
        try:
            return self._rendered(prompt)
        except (ValueError, TypeError) as error:
            msg = (
                f"row {index}: the chat prompt could not be rendered: {error}. A model without a chat template takes text "
                "prompts, or a template in actor_rollout_ref.model.custom_chat_template."
            )
            raise DataError(msg) from error

    def _rendered(self, prompt: Any) -> list[int]:
        return list(
            self._tokenizer.apply_chat_template(
                list(prompt),
                tokenize=True,
                return_dict=False,
                add_generation_prompt=True,
                **self._config.apply_chat_template_kwargs,
            )
        )

    def _truncate(self, index: int, ids: list[int], limit: int) -> list[int]:
        match self._config.truncation:
            case "left":
                return ids[-limit:]
            case "right":
                return ids[:limit]
            case "middle":
                head = limit // 2
                return ids[:head] + ids[len(ids) - (limit - head) :]
        msg = (
            f"row {index}: the prompt has {len(ids)} tokens, data.max_prompt_length is {limit}. Raise it, drop such rows "
            "with data.filter_overlong_prompts=True, or cut them with data.truncation=left|right|middle."
        )
        raise DataError(msg)
