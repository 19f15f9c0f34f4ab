from __future__ import annotations

import json

import pytest
from rl_core.config import RMDataConfig
from rl_core.data.preferences import PreferenceDataset
from rl_core.errors import DataError
from rl_testing.fakes.tokenizer import TinyTokenizer

TOKENIZER = TinyTokenizer()
QUESTION = [{"role": "user", "content": "q"}]


def said(text):
    return [{"role": "assistant", "content": text}]


def dataset(tmp_path, *rows, max_samples=-1, **config):
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return PreferenceDataset(str(path), RMDataConfig(**config), TOKENIZER, max_samples=max_samples)


def texts(item):
    return [TOKENIZER.decode(item[name]) for name in ("chosen_ids", "rejected_ids")]


WHOLE = {"chosen": QUESTION + said("good"), "rejected": QUESTION + said("bad"), "margin": 0.5}


@pytest.mark.parametrize(
    "row",
    [
        WHOLE,
        {"chosen": json.dumps(QUESTION + said("good")), "rejected": json.dumps(QUESTION + said("bad"))},
        {"prompt": QUESTION, "chosen": said("good"), "rejected": said("bad")},
        {"prompt": QUESTION, "chosen": "good", "rejected": "bad"},
    ],
    ids=["conversations", "as text", "messages behind a prompt", "texts behind a prompt of messages"],
)
def test_conversations_are_written_to_the_end_of_the_last_turn(tmp_path, row):
    (item,) = dataset(tmp_path, row).items
    assert texts(item) == ["user:q\nassistant:good\n", "user:q\nassistant:bad\n"]
    assert item["margin"] == row.get("margin", 0.0)
    assert item["index"] == 0


def test_texts_get_no_template_and_end_with_the_token_that_ends_a_text(tmp_path):
    (item,) = dataset(tmp_path, {"prompt": "q: ", "chosen": "good", "rejected": "bad"}).items
    assert texts(item) == ["q: good<eos>", "q: bad<eos>"]


def test_other_columns(tmp_path):
    row = {"x": "q", "better": "good", "worse": "bad", "by": 2}
    keys = {"prompt_key": "x", "chosen_key": "better", "rejected_key": "worse", "margin_key": "by"}
    (item,) = dataset(tmp_path, row, **keys).items
    assert texts(item) == ["qgood<eos>", "qbad<eos>"]
    assert item["margin"] == 2.0


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"chosen": QUESTION + said("a")}, "row 0 has nothing in column 'rejected'"),
        (
            {"chosen": QUESTION, "rejected": QUESTION},
            "must end with what the assistant says; it ends with the role 'user'",
        ),
        ({"prompt": "", "chosen": "", "rejected": "b"}, "row 0: chosen has 1 tokens"),
        (WHOLE | {"margin": "much"}, "margin must be a finite number"),
        (WHOLE | {"chosen": 3}, "row 0: chosen must be a list"),
    ],
)
def test_what_is_no_pair_is_refused_with_its_row(tmp_path, row, text):
    with pytest.raises(DataError, match=text):
        dataset(tmp_path, row)


def test_longer_conversations(tmp_path):
    long = {"prompt": "q" * 20, "chosen": "good", "rejected": "bad"}
    with pytest.raises(DataError, match=r"row 0: a conversation of the pair has 25 tokens, data.max_length is 8"):
        dataset(tmp_path, long, max_length=8)
    cut = dataset(tmp_path, long, max_length=8, truncation="left")
    assert texts(cut.items[0]) == ["qqqgood<eos>", "qqqqbad<eos>"]
    assert cut.notes("training") == [
        "1 of 1 training pairs have a conversation longer than data.max_length (8), cut at its beginning "
        "(data.truncation=left)."
    ]
    short = {"prompt": "q", "chosen": "a", "rejected": "b"}
    dropped = dataset(tmp_path, long, short, max_length=8, truncation="drop")
    assert [item["index"] for item in dropped.items] == [1]
    assert dropped.num_dropped == 1
    with pytest.raises(DataError, match="none of the 1 pairs is left: 0 have the same tokens"):
        dataset(tmp_path, long, max_length=8, truncation="drop")


def test_equal_sides_teach_nothing(tmp_path):
    found = dataset(
        tmp_path, {"prompt": "q", "chosen": "a", "rejected": "A"}, {"prompt": "q", "chosen": "a", "rejected": "b"}
    )
    assert len(found) == 1
    assert found.notes("validation") == ["1 of 2 validation pairs have the same tokens on both sides and are left out."]
    assert len(dataset(tmp_path, WHOLE, WHOLE, max_samples=1)) == 1
