"""One row of a file of prompts: token ids and the columns that travel with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rl_core.data.files import Row, plain
from rl_core.data.media import COLUMN as MEDIA
from rl_core.data.media import row_media, with_placeholders
from rl_core.data.over_long import OverLongError
from rl_core.data.text_ids import adds_bos, encode_text
from rl_core.data.tools import Schema, row_tools
from rl_core.errors import DataError

if TYPE_CHECKING:
    from rl_core.config import DataConfig

PASSED_ON: Final = ("data_source", "reward_model", "extra_info", "agent_name", "index", "ability", "tools_kwargs")
"""Columns that travel with a prompt, each None where a row lacks it."""

TOOLS: Final = "tools"
RAW_IDS: Final = "raw_prompt_ids"


class PromptRow(NamedTuple):
    """What a row becomes."""

    item: dict[str, Any] | None
    """``prompt_ids`` and the columns that are passed on; None for a row that is filtered out."""

    num_tokens: int
    """Tokens of the prompt before truncation."""

    hides_tools: bool = False
    """The row has tools, and the template renders the same without them."""

    lacks_bos: bool = False
    """The tokenizer begins every text with a token that the template leaves out."""


def no_prompt(number: int, row: Row, key: str) -> str:
    """Why a row without a prompt cannot be used."""
    return f"row {number} has no column {key!r} (data.prompt_key); it has {', '.join(sorted(row))}"


class PromptRowEncoder:
    """Renders and tokenises rows, always in the same way: what is filtered and shown is what is generated from."""

    def __init__(
        self,
        config: DataConfig,
        tokenizer: Any,
        *,
        tools: Sequence[Schema] = (),
        media: frozenset[str] = frozenset(),
    ) -> None:
        """Store the arguments.

        Args:
            config: the ``data`` section.
            tokenizer: of the policy; needs ``encode`` and, for chat rows, ``apply_chat_template``.
            tools: schemas of the tools of rows without tools of their own.
            media: what the model takes beside text: of ``image``, ``video``, ``audio``.
        """
        self._config = config
        self._tokenizer = tokenizer
        self._tools = tuple(tools)
        self._media = media
        self._adds_bos = adds_bos(tokenizer)

    def encode(self, number: int, row: Row, index: int) -> PromptRow:
        """Render one row.

        Args:
            number: of the row, for messages.
            row: as the file has it.
            index: becomes the column ``index`` where the row has none.

        Raises:
            DataError: the row cannot be used, or its prompt is too long and ``data.truncation`` is ``error``.
        """
        config = self._config
        if config.prompt_key not in row:
            raise DataError(no_prompt(number, row, config.prompt_key))
        if row.get("reward_model") is not None and not isinstance(row["reward_model"], Mapping):
            msg = f"row {number}: reward_model is {row['reward_model']!r}; it must be a dict with ground_truth"
            raise DataError(msg)
        prompt, tools = plain(row[config.prompt_key]), row_tools(number, row, self._tools)
        media = row_media(number, row, config)
        if self._media:
            prompt = with_placeholders(number, prompt, media) if isinstance(prompt, list) else prompt
        self._require_taken(number, media)
        ids, hides_tools = self._ids(number, prompt, tools)
        if not ids:
            msg = f"row {number}: the prompt {row[config.prompt_key]!r} has no tokens"
            raise DataError(msg)
        is_long = len(ids) > config.max_prompt_length
        # A text gets that token from the tokenizer itself.
        lacks_bos = self._adds_bos and ids[0] != self._tokenizer.bos_token_id
        if is_long and config.filter_overlong_prompts:
            return PromptRow(None, len(ids), hides_tools, lacks_bos)
        item = {name: plain(row.get(name)) for name in PASSED_ON} | {
            "prompt_ids": self._truncated(number, ids) if is_long else ids,
            "raw_prompt": prompt if config.return_raw_chat else None,
            "data_source": plain(row.get(config.reward_fn_key)),
            "index": plain(row["index"]) if row.get("index") is not None else index,
        }
        item |= {RAW_IDS: ids} if config.return_raw_input_ids else {}
        return PromptRow(
            item | ({TOOLS: tools} if tools else {}) | ({MEDIA: media} if media else {}),
            len(ids),
            hides_tools,
            lacks_bos,
        )

    def rendered(self, number: int, row: Row) -> str | None:
        """The text of a row's prompt as the model sees it, for people; None for a prompt that is a text itself."""
        prompt = plain(row[self._config.prompt_key])
        if isinstance(prompt, str):
            return None
        if self._media:
            prompt = with_placeholders(number, prompt, row_media(number, row, self._config))
        return str(self._template(prompt, row_tools(number, row, self._tools), tokenize=False))

    def _require_taken(self, number: int, media: Mapping[str, Sequence[Any]]) -> None:
        for kind, handles in media.items():
            if kind not in self._media:
                column = {"image": "image_key", "video": "video_key", "audio": "audio_key"}[kind]
                msg = (
                    f"row {number} has {len(handles)} {kind}{'s' * (len(handles) != 1)} in column "
                    f"{getattr(self._config, column)!r} (data.{column}), but the model takes "
                    f"{' and '.join(['text', *sorted(self._media)])} only. Leave such rows out, or set the key to a column "
                    "that does not exist"
                )
                raise DataError(msg)

    def _ids(self, number: int, prompt: Any, tools: list[Schema]) -> tuple[list[int], bool]:
        """Ids of the prompt, and whether its tools do not show in them."""
        if isinstance(prompt, str):
            return encode_text(self._tokenizer, prompt), bool(tools)
        if not isinstance(prompt, list) or not all(isinstance(turn, Mapping) and "role" in turn for turn in prompt):
            msg = (
                f"row {number}: {self._config.prompt_key} must be a text or a list of messages with role and content; "
                f"found {prompt!r}"
            )
            raise DataError(msg)
        try:
            ids = list(self._template(prompt, tools, tokenize=True))
            hides_tools = bool(tools) and ids == list(self._template(prompt, [], tokenize=True))
        except Exception as error:  # templates are code of the model's: they raise what they like
            msg = (
                f"row {number}: the chat prompt could not be rendered: {error}. A model without a chat template takes text "
                "prompts, or a template in actor_rollout_ref.model.custom_chat_template."
            )
            raise DataError(msg) from error
        bos = getattr(self._tokenizer, "bos_token_id", None)
        return ids[1:] if bos is not None and ids[:2] == [bos, bos] else ids, hides_tools

    def _template(self, prompt: list[Any], tools: list[Schema], *, tokenize: bool) -> Any:
        options = dict(self._config.apply_chat_template_kwargs)
        if tools:
            options["tools"] = tools
        return self._tokenizer.apply_chat_template(
            prompt, tokenize=tokenize, return_dict=False, add_generation_prompt=True, **options
        )

    def _truncated(self, number: int, ids: list[int]) -> list[int]:
        limit = self._config.max_prompt_length
        match self._config.truncation:
            case "left":
                return ids[-limit:]
            case "right":
                return ids[:limit]
            case "middle":
                head = limit // 2
                return ids[:head] + ids[len(ids) - (limit - head) :]
        msg = (
            f"row {number}: the prompt has {len(ids)} tokens, data.max_prompt_length is {limit}. Raise it, drop such rows "
            "with data.filter_overlong_prompts=True, or cut them with data.truncation=left|right|middle."
        )
        raise OverLongError.of(msg, len(ids))
