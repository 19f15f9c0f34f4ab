import json

import pyarrow
import pyarrow.parquet
import pytest
from rl_core.config.data import DataConfig
from rl_core.data.prompt_row import PASSED_ON
from rl_core.data.prompts import PromptDataset, passed_columns
from rl_core.errors import ConfigError, DataError


class Words:
    """One token a word; the template adds three, and a token for each word of the tools."""

    def encode(self, text):
        return [len(word) for word in text.split()]

    def apply_chat_template(self, messages, *, tokenize, add_generation_prompt, return_dict, tools=(), **options):
        assert tokenize and add_generation_prompt and not return_dict
        shown = [9 for tool in tools for _ in tool["description"].split()]
        words = " ".join(m["content"] for m in messages)
        return [*shown, 1, *self.encode(words), 2, 3 + int(options.get("thinking", 0))]


@pytest.fixture
def dataset(tmp_path):
    def dataset(*rows, tokenizer=None, max_samples=-1, seed=None, **config):
        (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        options = DataConfig(**({"max_prompt_length": 4} | config))
        return PromptDataset(
            str(tmp_path / "d.jsonl"), options, tokenizer or Words(), max_samples=max_samples, seed=seed
        )

    return dataset


def chat(text, **more):
    return {"prompt": [{"role": "user", "content": text}]} | more


def test_text_and_chat_rows(dataset):
    data = dataset(
        {"prompt": "a bb ccc"}, chat("aa", data_source="d", index=7), apply_chat_template_kwargs={"thinking": 1}
    )
    assert [item["prompt_ids"] for item in data.items] == [[1, 2, 3], [1, 2, 2, 4]]
    assert data[1]["index"] == 7
    assert data[0]["index"] == 0
    assert data[0]["data_source"] is None
    assert data.notes("training") == []


def test_missing_column_names_what_is_there(dataset):
    with pytest.raises(DataError, match=r"d\.jsonl: row 1 has no column 'prompt' .*it has question"):
        dataset({"prompt": "a"}, {"question": "b"})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (chat("a", reward_model="4"), "reward_model is '4'; it must be a dict"),
        ({"prompt": 3}, "prompt must be a text or a list of messages .* found 3"),
        ({"prompt": ["hello"]}, "prompt must be a text or a list of messages"),
        ({"prompt": [{"role": "user"}]}, "the chat prompt could not be rendered"),
        ({"prompt": ""}, "the prompt '' has no tokens"),
    ],
)
def test_a_broken_row_is_named(dataset, row, message):
    with pytest.raises(DataError, match=rf"d\.jsonl: row 1: {message}"):
        dataset({"prompt": "a"}, row)


def test_the_second_file_counts_its_own_rows(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    (tmp_path / "b.jsonl").write_text('{"prompt": "c"}\n{"question": "d"}\n')
    files = [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]
    with pytest.raises(DataError, match=r"b\.jsonl: row 1 has no column"):
        PromptDataset(files, DataConfig(), Words())
    (tmp_path / "b.jsonl").write_text('{"prompt": "c"}\n')
    data = PromptDataset(files, DataConfig(), Words())
    assert [item["index"] for item in data.items] == [0, 1, 2]
    assert data.mixture([1, 3]).sizes == (2, 1)
    with pytest.raises(ConfigError, match="3 numbers for 2 files"):
        data.mixture([1, 2, 3])


def test_over_long_prompts_are_refused_filtered_or_cut(dataset):
    rows = ({"prompt": "a bb ccc dddd eeeee"}, {"prompt": "a"})
    with pytest.raises(DataError, match=r"row 0: the prompt has 5 tokens, data\.max_prompt_length is 4"):
        dataset(*rows)
    filtered = dataset(*rows, filter_overlong_prompts=True)
    assert (len(filtered), filtered.num_filtered, filtered.num_truncated) == (1, 1, 0)
    assert filtered.notes("training") == [
        "1 of 2 training prompts are longer than data.max_prompt_length (4) and left out."
    ]
    cut = dataset(*rows, truncation="left")
    assert (cut[0]["prompt_ids"], cut.num_filtered, cut.num_truncated) == ([2, 3, 4, 5], 0, 1)
    assert cut.notes("validation") == [
        "1 of 2 validation prompts are longer than data.max_prompt_length (4) and cut (data.truncation=left)."
    ]
    assert dataset(*rows, truncation="right")[0]["prompt_ids"] == [1, 2, 3, 4]
    assert dataset(*rows, truncation="middle")[0]["prompt_ids"] == [1, 2, 4, 5]


def test_nothing_left_after_the_filter(dataset):
    with pytest.raises(DataError, match="all 1 prompts are longer than"):
        dataset({"prompt": "a b c d e"}, filter_overlong_prompts=True)


def test_b36_tools_and_template_arguments_count_in_filter_and_prompt(dataset, tmp_path):
    # 40 words, 3 of the template (5 in the report: 2 more of its words here), 30 of the tools.
    schema = {"name": "calc", "description": " ".join(["word"] * 30)}
    row = chat(" ".join(["word"] * 42))
    (tmp_path / "tools.yaml").write_text(json.dumps({"tools": [{"tool_schema": schema}]}))
    tools = {"tool_config_path": str(tmp_path / "tools.yaml")}

    with pytest.raises(DataError, match=r"row 0: the prompt has 75 tokens, data\.max_prompt_length is 60"):
        dataset(row, max_prompt_length=60, **tools)
    short = chat("word")
    filtered = dataset(row, short, max_prompt_length=60, filter_overlong_prompts=True, **tools)
    assert (filtered.num_filtered, len(filtered)) == (1, 1)
    kept = dataset(row, max_prompt_length=80, filter_overlong_prompts=True, **tools)
    assert (kept.num_filtered, len(kept[0]["prompt_ids"])) == (0, 75)
    assert kept[0]["tools"] == [schema]
    assert len(dataset(row, max_prompt_length=80)[0]["prompt_ids"]) == 45


def test_rows_choose_their_tools(dataset, tmp_path):
    schemas = [{"name": name, "description": "x"} for name in ("a", "b")]
    (tmp_path / "tools.yaml").write_text(json.dumps(schemas))
    rows = [
        chat("w"),
        chat("w", extra_info={"tool_selection": ["b"]}),
        chat("w", extra_info={"tool_selection": []}),
        chat("w", tools=json.dumps([{"name": "own", "description": "x x"}])),
    ]
    data = dataset(*rows, tool_config_path=str(tmp_path / "tools.yaml"), max_prompt_length=9)
    assert [[tool["name"] for tool in item["tools"] or ()] for item in data.items] == [["a", "b"], ["b"], [], ["own"]]
    assert [len(item["prompt_ids"]) for item in data.items] == [6, 5, 4, 6]


def test_tools_that_a_template_does_not_show_are_told(dataset):
    class Blind(Words):
        def apply_chat_template(self, messages, *, tools=(), **options):
            return super().apply_chat_template(messages, **options)

    rows = [chat("w", tools=[{"name": "own", "description": "x"}]), chat("w")]
    assert dataset(*rows, max_prompt_length=9).notes("training") == []
    (note,) = dataset(*rows, tokenizer=Blind()).notes("training")
    assert note.startswith("1 of 2 training prompts have tools that do not show in the prompt")


class Begins(Words):
    """Adds its beginning, 1, to every text; the template writes it where ``writes`` says so."""

    bos_token_id = 1
    eos_token_id = 2
    eos_token = "<eos>"

    def __init__(self, *, writes=0, closes=False):
        self.writes = writes
        self.closes = closes

    def encode(self, text):
        written = text.startswith("<bos>")
        return [1] * (1 + written) + [50 + len(w) for w in text.removeprefix("<bos>").split()] + [2] * self.closes

    def apply_chat_template(self, messages, *, tokenize, add_generation_prompt, return_dict):
        return [1] * self.writes + [7, 8]


@pytest.mark.parametrize(("writes", "ids"), [(1, [1, 7, 8]), (0, [7, 8]), (2, [1, 7, 8])])
def test_b38_a_chat_prompt_begins_as_its_template_says_and_never_twice(dataset, writes, ids):
    data = dataset(chat("hi"), tokenizer=Begins(writes=writes))
    assert data[0]["prompt_ids"] == ids
    told = data.notes("training")
    assert len(told) == (writes == 0)
    assert all("do not begin with the token" in note for note in told)


@pytest.mark.parametrize("text", ["hi", "<bos>hi"])
def test_b38_a_text_begins_once(dataset, text):
    assert dataset({"prompt": text}, tokenizer=Begins())[0]["prompt_ids"] == [1, 52]
    assert dataset({"prompt": text}, tokenizer=Begins(closes=True))[0]["prompt_ids"] == [1, 52], "and is not closed"


def test_b42_fields_of_other_rows_are_absent(tmp_path):
    tools = ({"calc": {"create_kwargs": {"ground_truth": "4"}}}, {"search": {"create_kwargs": {"q": "x"}}})
    rows = [
        chat("aa", reward_model={"ground_truth": 4 + number}, extra_info={"tools_kwargs": kwargs})
        for number, kwargs in enumerate(tools)
    ]
    path = tmp_path / "d.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    data = PromptDataset(str(path), DataConfig(), Words())
    assert [item["extra_info"]["tools_kwargs"] for item in data.items] == list(tools)
    assert [item["reward_model"] for item in data.items] == [{"ground_truth": 4}, {"ground_truth": 5}]
    assert data[0]["raw_prompt"] == [{"role": "user", "content": "aa"}]


def test_what_travels_with_a_prompt(dataset):
    rows = [chat("a b c", kind="x"), chat("a")]
    plain = dataset(*rows, max_prompt_length=9)
    assert passed_columns(plain.items) == ("raw_prompt", *PASSED_ON)
    data = dataset(*rows, truncation="right", return_raw_chat=False, return_raw_input_ids=True, reward_fn_key="kind")
    assert passed_columns(data.items) == ("raw_prompt", *PASSED_ON, "raw_prompt_ids")
    assert data[0]["raw_prompt"] is None
    assert (data[0]["prompt_ids"], data[0]["raw_prompt_ids"]) == ([1, 1, 1, 1], [1, 1, 1, 1, 2, 3])
    assert data.data_sources() == {"x": 0, None: 1}


def test_fewer_rows_are_the_first_or_drawn_by_the_seed(dataset):
    rows = [{"prompt": "a", "index": number} for number in range(50)]

    def chosen(**options):
        return [item["index"] for item in dataset(*rows, max_samples=10, **options).items]

    assert chosen() == list(range(10))
    assert chosen(seed=1) == chosen(seed=1) == sorted(set(chosen(seed=1)))
    assert len({*map(tuple, (chosen(), chosen(seed=1), chosen(seed=2)))}) == 3


IMAGE = {"bytes": b"png", "path": None}


def test_images_are_refused_by_a_model_of_text(tmp_path):
    path = tmp_path / "d.parquet"
    rows = [chat("a", images=[]), chat("<image> b", images=[IMAGE])]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    with pytest.raises(DataError, match=r"d\.parquet: row 1 has 1 image in column 'images' .* takes text only"):
        PromptDataset(str(path), DataConfig(), Words())


def test_images_travel_as_handles(tmp_path):
    class Parts(Words):
        def apply_chat_template(self, messages, **options):
            parts = [part for m in messages for part in (m["content"] if isinstance(m["content"], list) else ())]
            return [len(parts), 7]

    path = tmp_path / "d.jsonl"
    rows = [chat("a"), chat("<image>b<image>", images=["x.png", {"path": "y.png"}])]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = PromptDataset(str(path), DataConfig(), Parts(), media=frozenset({"image"}))
    assert data[0]["multi_modal_data"] == {}
    assert [handle.path for handle in data[1]["multi_modal_data"]["image"]] == ["x.png", "y.png"]
    assert data[1]["prompt_ids"] == [3, 7]
    path.write_text(json.dumps(chat("b", images=["x.png"])))
    with pytest.raises(DataError, match=r"row 0: the messages have 0 places for images .* the row has 1"):
        PromptDataset(str(path), DataConfig(), Parts(), media=frozenset({"image"}))
