"""Every row of a file as training would take it, and what it would refuse; nothing stops at the first fault."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from rl_core.data.chat_row import ChatRowEncoder
from rl_core.data.files import Place, Row, plain, read_files
from rl_core.data.json_lists import parsed_list, parsed_messages
from rl_core.data.over_long import OverLongError
from rl_core.data.pair_row import PairEncoder
from rl_core.data.prompt_row import PromptRowEncoder, no_prompt
from rl_core.data.tools import configured_tools, row_tools, tool_name
from rl_core.errors import DataError

if TYPE_CHECKING:
    from rl_core.config import DataConfig, RMDataConfig, SFTDataConfig

PROMPTS: Final = "prompts"
CONVERSATIONS: Final = "conversations"
PAIRS: Final = "pairs"
KINDS: Final = (PROMPTS, CONVERSATIONS, PAIRS)


@dataclass
class SurveyedRow:
    """One row.

    Attributes:
        place: where it stands.
        roles: of its messages, in order; empty for a text.
        tools: names of the tools its prompt shows.
        data_source: selects its reward; None where the row has none, and for other kinds of rows.
        has_ground_truth: whether a prompt comes with what its response can be compared with.
        num_tokens: before truncation; None without a tokenizer.
        ids: as training takes them; empty for a row that is left out, and without a tokenizer.
        mask: which of them are learned; None for prompts.
        texts: what is shown where there are no ids: the messages, one text each with its role in front.
        left_out: why training leaves it out and goes on; None where it does not.
        hides_tools: its tools do not show in its prompt.
        error: why training would refuse it.
    """

    place: Place
    roles: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    data_source: str | None = None
    has_ground_truth: bool = False
    num_tokens: int | None = None
    ids: list[int] = field(default_factory=list)
    mask: list[bool] | None = None
    texts: list[tuple[str, str]] = field(default_factory=list)
    left_out: str | None = None
    hides_tools: bool = False
    error: str | None = None

    @property
    def is_cut(self) -> bool:
        """Whether tokens of it are missing."""
        return self.num_tokens is not None and 0 < len(self.ids) < self.num_tokens

    def refuse(self, error: DataError) -> None:
        """Note why the row cannot be used, and its length where that is why."""
        self.error = str(error)
        if isinstance(error, OverLongError):
            self.num_tokens = error.num_tokens


def kind_of(row: Row, prompt_key: str) -> str:
    """What kind of rows a file holds, told from one.

    Raises:
        DataError: it is none that training takes.
    """
    if row.get("chosen") is not None and row.get("rejected") is not None:
        return PAIRS
    if row.get("messages") is not None or (isinstance(row.get("prompt"), str) and isinstance(row.get("response"), str)):
        return CONVERSATIONS
    if row.get(prompt_key) is not None:
        return PROMPTS
    msg = (
        f"row 0 holds neither a prompt (column {prompt_key!r}), nor a conversation ('messages', or texts in 'prompt' and "
        f"'response'), nor a pair ('chosen' and 'rejected'); it has {', '.join(sorted(row))}. Name the column: "
        "data.prompt_key=NAME, or with --kind conversations data.messages_key=NAME"
    )
    raise DataError(msg)


def survey_prompts(files: Any, config: DataConfig, tokenizer: Any | None) -> Iterator[SurveyedRow]:
    """Rows as ``rl train`` takes them.

    Args:
        files: a path or several.
        config: the ``data`` section.
        tokenizer: of the policy; None counts no tokens.
    """
    tools = configured_tools(config.tool_config_path, config.function_tool_path)
    encoder = None if tokenizer is None else PromptRowEncoder(config, tokenizer, tools=tools)
    for index, (place, row) in enumerate(_rows(files)):
        reward_model = row.get("reward_model")
        truth = reward_model.get("ground_truth") if isinstance(reward_model, dict) else None
        source = plain(row.get(config.reward_fn_key))
        found = SurveyedRow(place, data_source=source, has_ground_truth=truth is not None)
        try:
            prompt = plain(row.get(config.prompt_key))
            if not isinstance(prompt, str) and prompt is not None:
                found.texts = _texts(parsed_messages(place.number, prompt, config.prompt_key))
                found.roles = tuple(role for role, _ in found.texts)
            elif prompt is not None:
                found.texts = [("", prompt)]
            elif encoder is None:
                found.refuse(DataError(no_prompt(place.number, row, config.prompt_key)))
            found.tools = _names(row_tools(place.number, row, tools))
            if encoder is not None:
                done = encoder.encode(place.number, row, index)
                found.num_tokens, found.hides_tools = done.num_tokens, done.hides_tools
                if done.item is None:
                    found.left_out = f"longer than data.max_prompt_length={config.max_prompt_length}"
                else:
                    found.ids = done.item["prompt_ids"]
        except DataError as error:
            found.refuse(error)
        yield found


def survey_conversations(files: Any, config: SFTDataConfig, tokenizer: Any | None) -> Iterator[SurveyedRow]:
    """Rows as ``rl sft`` takes them; arguments as for ``survey_prompts``."""
    encoder = None if tokenizer is None else ChatRowEncoder(config, tokenizer)
    for place, row in _rows(files):
        yield _conversation(place, row, config, encoder)


def survey_pairs(files: Any, config: RMDataConfig, tokenizer: Any | None) -> Iterator[SurveyedRow]:
    """Both sides of each pair as ``rl rm`` takes them, the chosen one first; arguments as for ``survey_prompts``."""
    encoder = None if tokenizer is None else PairEncoder(config, tokenizer)
    for place, row in _rows(files):
        sides = [_side(place, row, key, config, encoder) for key in (config.chosen_key, config.rejected_key)]
        if sides[0].ids and sides[0].ids == sides[1].ids:
            for side in sides:
                side.left_out = "both sides are the same tokens"
        yield from sides


def _side(place: Place, row: Row, key: str, config: RMDataConfig, encoder: PairEncoder | None) -> SurveyedRow:
    found = SurveyedRow(place, data_source=key)
    try:
        for column in (config.prompt_key, key):
            value = row.get(column)
            texts = [(column, value)] if isinstance(value, str) else []
            found.texts += texts or (_texts(parsed_messages(place.number, value, column)) if value is not None else [])
        found.roles = tuple(role for role, _ in found.texts)
        found.tools = _names(parsed_list(place.number, row.get(config.tools_key), config.tools_key))
        if encoder is not None:
            found.ids = encoder.encode(place.number, row, key)
            found.num_tokens = len(found.ids)
        if len(found.ids) > config.max_length:
            _shorten(found, config)
    except DataError as error:
        found.refuse(error)
    return found


def _shorten(found: SurveyedRow, config: RMDataConfig) -> None:
    limit = f"data.max_length={config.max_length}"
    if config.truncation == "error":
        found.error = f"row {found.place.number}: {found.data_source} has {found.num_tokens} tokens, more than {limit}"
    elif config.truncation == "drop":
        found.ids, found.left_out = [], f"longer than {limit}"
    else:
        found.ids = found.ids[-config.max_length :]


def _conversation(place: Place, row: Row, config: SFTDataConfig, encoder: ChatRowEncoder | None) -> SurveyedRow:
    found = SurveyedRow(place)
    try:
        if row.get(config.messages_key) is not None:
            found.texts = _texts(parsed_messages(place.number, row[config.messages_key], config.messages_key))
            found.roles = tuple(role for role, _ in found.texts)
            found.tools = _names(parsed_list(place.number, row.get(config.tools_key), config.tools_key))
        else:
            found.texts = [(key, str(row.get(key))) for key in (config.prompt_key, config.response_key) if key in row]
        if encoder is not None:
            found.ids, found.mask, found.num_tokens = encoder.encode(place.number, row)
            if not any(found.mask):
                found.left_out = "no token of it would be learned"
    except DataError as error:
        found.refuse(error)
    return found


def _rows(files: Any) -> Iterator[tuple[Place, Row]]:
    for file in read_files(files):
        for number, row in enumerate(file.rows):
            yield Place(file.name, number), row


def _names(schemas: Sequence[Any]) -> tuple[str, ...]:
    return tuple(tool_name(schema) or "?" for schema in schemas)


def _texts(messages: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    return [(str(message["role"]), _text(message["content"])) for message in messages]


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(
            part.get("text", f"<{part.get('type')}>") if isinstance(part, dict) else str(part) for part in content
        )
    return str(content)
