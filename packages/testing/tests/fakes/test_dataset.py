from __future__ import annotations

import json

import pytest
from rl_core.config import DataConfig
from rl_core.data.prompts import PromptDataset
from rl_testing.fakes.dataset import LetterDataset, letter_rows
from rl_testing.fakes.tokenizer import TinyTokenizer


def test_rows_ask_for_letters_in_turn():
    rows = letter_rows(10)
    assert [row["reward_model"]["ground_truth"] for row in rows] == [*"abcdefgh", "a", "b"]
    assert len({row["prompt"][0]["content"] for row in rows}) == 10
    assert {row["reward_model"]["ground_truth"] for row in letter_rows(3, letter="q")} == {"q"}


def test_items_are_those_of_the_real_data_set(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in letter_rows(5)), encoding="utf-8")
    real = PromptDataset(str(file), DataConfig(), TinyTokenizer())
    assert LetterDataset("5", None, TinyTokenizer()).items == real.items


@pytest.mark.parametrize(("files", "max_samples", "length"), [(5, -1, 5), (5, 2, 2), (None, -1, 64), ("x", 100, 64)])
def test_length(files, max_samples, length):
    assert len(LetterDataset(files, None, TinyTokenizer(), max_samples=max_samples)) == length
