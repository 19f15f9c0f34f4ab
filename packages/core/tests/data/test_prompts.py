import json
from types import SimpleNamespace

import pyarrow
import pyarrow.parquet
import pytest
from rl_core.data.prompts import PromptDataset
from rl_core.errors import DataError


class Words:
    """One token a word; the template adds three."""

    def encode(self, text):
        return [len(word) for word in text.split()]

    def apply_chat_template(self, messages, *, tokenize, add_generation_prompt, return_dict, **options):
        assert tokenize and add_generation_prompt and not return_dict
        return [1, *self.encode(" ".join(m["content"] for m in messages)), 2, 3 + int(options.get("thinking", 0))]


def config(**overrides):
    options = {
        "prompt_key": "prompt",
        "max_prompt_length": 4,
        "filter_overlong_prompts": False,
        "truncation": "error",
        "apply_chat_template_kwargs": {},
    }
    return SimpleNamespace(**(options | overrides))


def dataset(tmp_path, *rows, **overrides):
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return PromptDataset(str(tmp_path / "d.jsonl"), config(**overrides), Words())


def test_text_and_chat_rows(tmp_path):
    chat = {"prompt": [{"role": "user", "content": "aa"}], "data_source": "d", "index": 7}
    data = dataset(tmp_path, {"prompt": "a bb ccc"}, chat, apply_chat_template_kwargs={"thinking": 1})

    assert [item["prompt_ids"] for item in data.items] == [[1, 2, 3], [1, 2, 2, 4]]
    assert data[1]["index"] == 7
    assert data[0]["index"] == 0
    assert data[0]["data_source"] is None


def test_missing_column_names_what_is_there(tmp_path):
    with pytest.raises(DataError, match=r"row 1 has no column 'prompt' .*it has question"):
        dataset(tmp_path, {"prompt": "a"}, {"question": "b"})


def test_over_long_prompts_are_refused_filtered_or_cut(tmp_path):
    rows = ({"prompt": "a bb ccc dddd eeeee"}, {"prompt": "a"})
    with pytest.raises(DataError, match=r"row 0: the prompt has 5 tokens, data\.max_prompt_length is 4"):
        dataset(tmp_path, *rows)
    filtered = dataset(tmp_path, *rows, filter_overlong_prompts=True)
    assert (len(filtered), filtered.num_filtered) == (1, 1)
    assert dataset(tmp_path, *rows, truncation="left")[0]["prompt_ids"] == [2, 3, 4, 5]
    assert dataset(tmp_path, *rows, truncation="right")[0]["prompt_ids"] == [1, 2, 3, 4]
    assert dataset(tmp_path, *rows, truncation="middle")[0]["prompt_ids"] == [1, 2, 4, 5]


def test_nothing_left_after_the_filter(tmp_path):
    with pytest.raises(DataError, match="all 1 prompts are longer than"):
        dataset(tmp_path, {"prompt": "a b c d e"}, filter_overlong_prompts=True)


def test_an_empty_prompt(tmp_path):
    with pytest.raises(DataError, match="row 0: the prompt '' has no tokens"):
        dataset(tmp_path, {"prompt": ""})


def test_tools_of_other_rows_are_absent(tmp_path):
    # B42: a parquet file gives every row the fields of all of them.
    tools = ({"calc": {"create_kwargs": {"ground_truth": "4"}}}, {"search": {"create_kwargs": {"q": "x"}}})
    rows = [
        {
            "prompt": [{"role": "user", "content": "aa"}],
            "reward_model": {"ground_truth": 4 + number},
            "extra_info": {"tools_kwargs": kwargs},
        }
        for number, kwargs in enumerate(tools)
    ]
    path = tmp_path / "d.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    data = PromptDataset(str(path), config(), Words())
    assert [item["extra_info"]["tools_kwargs"] for item in data.items] == list(tools)
    assert [item["reward_model"] for item in data.items] == [{"ground_truth": 4}, {"ground_truth": 5}]
    assert data[0]["raw_prompt"] == [{"role": "user", "content": "aa"}]
