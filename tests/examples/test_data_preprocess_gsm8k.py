"""The GSM8K script, on a tiny copy of the data set's format; and, where it is given, on the real files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "data_preprocess" / "gsm8k.py"
PROBLEM = {"question": "Two pens cost $1,200. Price of one?", "answer": "1200/2=<<1200/2=600>>600\n#### 1,600"}


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1", **environment},
    )


def write_source(folder, count=2):
    folder.mkdir()
    for split in ("train", "test"):
        (folder / f"{split}.jsonl").write_text((json.dumps(PROBLEM) + "\n") * count)
    return folder


def test_rows_have_the_trainers_columns(tmp_path):
    done = run("--local_dir", tmp_path / "out", "--source", write_source(tmp_path / "source"))

    assert done.returncode == 0, done.stderr
    rows = pyarrow.parquet.read_table(tmp_path / "out" / "test.parquet").to_pylist()
    assert len(rows) == 2
    assert rows[1]["data_source"] == "openai/gsm8k"
    assert rows[1]["reward_model"] == {"style": "rule", "ground_truth": "1600"}
    assert rows[1]["prompt"][0]["content"].startswith(PROBLEM["question"])
    assert rows[1]["extra_info"]["index"] == 1


def test_solutions_become_conversations_with_the_same_prompts(tmp_path):
    done = run("--local_dir", tmp_path / "out", "--source", write_source(tmp_path / "source", 20), "--sft")

    assert done.returncode == 0, done.stderr
    train, val, rows = (
        pyarrow.parquet.read_table(tmp_path / "out" / f"{name}.parquet").to_pylist()
        for name in ("sft_train", "sft_val", "train")
    )
    assert (len(train), len(val), len(rows)) == (18, 2, 20)
    question, answer = train[0]["messages"]
    assert question == rows[0]["prompt"][0]
    # What the authors' calculator was asked is no part of the words.
    assert answer == {"role": "assistant", "content": "1200/2=600\n#### 1,600"}


def test_missing_source_file_is_named(tmp_path):
    done = run("--local_dir", tmp_path / "out", "--source", tmp_path)
    assert done.returncode == 2
    assert "has no train.jsonl" in done.stderr
    assert "Traceback" not in done.stderr


def test_offline_says_what_to_do(tmp_path):
    done = run("--local_dir", tmp_path / "out", HF_HOME=str(tmp_path / "empty"))
    assert done.returncode == 2
    assert "--source DIR" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif("RL_TEST_DATA" not in os.environ, reason="RL_TEST_DATA names no folder with the real data")
def test_the_real_data_set(tmp_path):
    done = run("--local_dir", tmp_path, "--source", Path(os.environ["RL_TEST_DATA"]) / "gsm8k")
    assert done.returncode == 0, done.stderr
    assert pyarrow.parquet.read_metadata(tmp_path / "train.parquet").num_rows == 7473
    assert pyarrow.parquet.read_metadata(tmp_path / "test.parquet").num_rows == 1319
