import json

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from rl_core.config.sft import SFTDataConfig
from rl_core.data.chat import ChatDataset
from rl_core.data.files import DataFile
from rl_core.errors import DataError


def chat(question, answer, **more):
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]} | more


@pytest.fixture
def dataset(tmp_path, toy):
    def dataset(*rows, tokenizer=None, max_samples=-1, **config):
        path = tmp_path / "d.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return ChatDataset(str(path), SFTDataConfig(**config), tokenizer or toy(), max_samples=max_samples)

    return dataset


@pytest.fixture
def shown(toy, learned):
    return lambda item: learned(toy(), (item["input_ids"], item["response_mask"]))


def test_rows_of_conversations(dataset, shown):
    data = dataset(chat("q", "x"), chat("qq", "yy", tools=[{"name": "calc"}]))
    assert [shown(item) for item in data.items] == ["<u>q<e>\n<a>[x<e>]\n", "<s>calc<e>\n<u>qq<e>\n<a>[yy<e>]\n"]
    assert [item["index"] for item in data.items] == [0, 1]
    assert data.notes("training") == []


def test_other_columns_and_texts_of_json(dataset, shown):
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "x"}]
    row = {"chat": json.dumps(turns), "functions": json.dumps([{"name": "calc"}])}
    data = dataset(row, messages_key="chat", tools_key="functions")
    assert shown(data[0]) == "<s>calc<e>\n<u>q<e>\n<a>[x<e>]\n"


def test_fields_that_only_other_rows_have_are_absent(shown, toy, tmp_path):
    # Columnar files give every message the fields of all of them.
    class Strict(toy):
        def text(self, messages, tools, opens):
            assert all(None not in message.values() for message in messages)
            assert all(set(tool) == {"name", f"only_{tool['name']}"} for tool in tools or ())
            return super().text(messages, tools, opens)

    calls = [{"role": "user", "content": "q"}, {"role": "assistant", "content": None, "tool_calls": ["f"]}]
    rows = [
        {"messages": calls, "tools": [{"name": "a", "only_a": "1"}]},
        chat("q", "x", tools=[{"name": "b", "only_b": "2"}]),
        chat("q", "x", tools=None),
    ]
    path = tmp_path / "d.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    assert pyarrow.parquet.read_table(path).to_pylist()[0]["tools"] == [{"name": "a", "only_a": "1", "only_b": None}]
    data = ChatDataset(str(path), SFTDataConfig(), Strict())
    assert [shown(item) for item in data.items] == [
        "<s>a<e>\n<u>q<e>\n<a>[<e>]\n",
        "<s>b<e>\n<u>q<e>\n<a>[x<e>]\n",
        "<u>q<e>\n<a>[x<e>]\n",
    ]


def test_null_of_json_reaches_the_template(dataset, toy, tmp_path):
    seen = []

    class Listens(toy):
        def text(self, messages, tools, opens):
            seen.append((messages, tools))
            return super().text(messages, tools, opens)

    tools = [{"name": "calc", "parameters": {"unit": {"default": None, "enum": ["m", None]}}}]
    call = {"function": {"name": "calc", "arguments": {"unit": None}}}
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    wanted = [turns[0], {"role": "assistant", "content": "", "tool_calls": [call]}]
    dataset({"messages": turns, "tools": tools}, tokenizer=Listens())
    assert (wanted, tools) in seen

    # JSON texts in a parquet file stay as they are, too.
    seen.clear()
    path = tmp_path / "d.parquet"
    row = {"messages": json.dumps(turns), "tools": json.dumps(tools)}
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), path)
    ChatDataset(str(path), SFTDataConfig(), Listens())
    assert (wanted, tools) in seen


def test_notes_of_the_template_are_passed_on(dataset, toy):
    class Lines(toy):
        def text(self, messages, tools, opens):
            return "".join(f"{m['role']}:{m['content']}\n" for m in messages) + "assistant:" * opens

    (note,) = dataset(chat("q", "x"), chat("q", "y"), tokenizer=Lines()).notes("training")
    assert note.startswith(
        "training rows: 2 conversations have an assistant turn that the chat template closes with no"
    )


def test_progress_is_told(dataset, monkeypatch, capsys):
    dataset(chat("q", "x"), chat("q", "y"))
    assert capsys.readouterr().out == ""
    monkeypatch.setattr("rl_core.data.chat._REPORT_SECONDS", 0.0)
    dataset(chat("q", "x"), chat("q", "y"))
    assert "tokenised 1 of 2 rows in 0 s" in capsys.readouterr().out.splitlines()


def test_b42_arrays_are_lists(shown, toy, monkeypatch):
    rows = [{"messages": np.array(chat("q", "x")["messages"])}]
    monkeypatch.setattr("rl_core.data.chat.read_files", lambda files: [DataFile("f", rows)])
    assert shown(ChatDataset("f", SFTDataConfig(), toy())[0]) == "<u>q<e>\n<a>[x<e>]\n"


def test_errors_name_the_file_and_its_row(tmp_path, toy):
    for name, rows in (("a", [chat("q", "x")]), ("b", [chat("q", "x"), {"messages": "?"}])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]
    with pytest.raises(DataError, match=r"b\.jsonl: row 1: messages is a text that is not valid JSON"):
        ChatDataset(files, SFTDataConfig(), toy())


def test_b38_a_text_that_writes_out_its_beginning_has_it_once(dataset, shown, toy):
    class Base(toy):
        chat_template = None
        bos_token_id = 1

    assert shown(dataset({"prompt": "<bos>2+2=", "response": "4"}, tokenizer=Base(bos=True))[0]) == "<bos>2+2=[4<e>]"


def test_texts_without_a_template(dataset, shown, toy):
    class Base(toy):
        chat_template = None

    data = dataset({"prompt": "2+2=", "response": "4"}, tokenizer=Base(bos=True))
    assert shown(data[0]) == "<bos>2+2=[4<e>]"
    Base.eos_token_id = None
    assert shown(dataset({"prompt": "", "response": "ab"}, tokenizer=Base())[0]) == "a[b]"


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"prompt": "q"}, r"row 1 has neither a conversation in column 'messages' .* it has prompt"),
        ({"messages": []}, "row 1: messages must be a list of messages"),
        ({"messages": "no json"}, "row 1: messages is a text that is not valid JSON"),
        ({"messages": [{"content": "q"}]}, "row 1: messages must be a list of messages with role and content"),
        ({"messages": {"role": "user"}}, "row 1: messages must be a list; found"),
        (chat("q", "x", tools="calc"), "row 1: tools is a text that is not valid JSON"),
    ],
)
def test_rows_that_hold_nothing_usable_are_named(dataset, row, text):
    with pytest.raises(DataError, match=text):
        dataset(chat("q", "x"), row)


def test_truncation(dataset, shown):
    rows = (chat("q", "x"), chat("qqq", "xyz"))  # 8 and 12 tokens
    with pytest.raises(DataError, match=r"row 1: the conversation has 12 tokens, data\.max_length is 9"):
        dataset(*rows, max_length=9)

    left = dataset(*rows, max_length=9, truncation="left")
    assert [shown(item) for item in left.items] == ["<u>q<e>\n<a>[x<e>]\n", "q<e>\n<a>[xyz<e>]\n"]
    right = dataset(*rows, max_length=9, truncation="right")
    assert [shown(item) for item in right.items] == ["<u>q<e>\n<a>[x<e>]\n", "<u>qqq<e>\n<a>[xy]"]
    assert right.notes("training") == [
        "1 of 2 training rows are longer than data.max_length (9) and cut at their end (data.truncation=right)."
    ]


def test_the_first_token_that_is_left_is_not_learned(dataset, shown):
    data = dataset(chat("q", "xyz"), max_length=3, truncation="left")
    assert shown(data[0]) == "z[<e>]\n"


def test_rows_without_anything_to_learn_are_counted(dataset):
    question = {"messages": [{"role": "user", "content": "q"}]}
    data = dataset(question, chat("q", "x"), chat("qqqqqqqq", "x"), max_length=9, truncation="right")
    assert [item["index"] for item in data.items] == [1]
    assert (data.num_truncated, data.num_without_target) == (1, 2)
    assert data.notes("validation")[1] == "2 of 3 validation rows have no token to learn and are left out."
    with pytest.raises(DataError, match="none of the 1 rows has a token to learn"):
        dataset(question)


def test_first_rows_only(dataset):
    assert len(dataset(chat("q", "x"), chat("q", "y"), max_samples=1)) == 1
