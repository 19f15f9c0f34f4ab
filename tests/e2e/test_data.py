"""What the data section does to a run: files in proportions, resumed exactly; what is counted; a class of one's own."""

from __future__ import annotations

import json

import pytest
from fakes_training import train, write_prompts

pytestmark = pytest.mark.heavy


def rows(path, letter, count):
    texts = [letter * (1 + number) for number in range(count)]
    lines = [
        {"prompt": text, "data_source": "count_letter", "reward_model": {"ground_truth": "a"}, "index": text}
        for text in texts
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def asked(folder):
    """Prompts of each step, as the dumps have them."""
    files = sorted((folder / "dumps").glob("*.jsonl"), key=lambda path: int(path.stem))
    return [[json.loads(line)["input"] for line in path.read_text().splitlines()] for path in files]


def test_files_are_mixed_in_proportion_and_a_resumed_run_goes_on_exactly(tmp_path):
    files = f"[{rows(tmp_path / 'a.jsonl', 'a', 6)},{rows(tmp_path / 'b.jsonl', 'b', 3)}]"

    def run(folder, steps, *more):
        train(
            folder,
            f"data.train_files={files}",
            "data.train_files_weights=[1,3]",
            "trainer.total_epochs=3",
            f"trainer.rollout_data_dir={folder / 'dumps'}",
            f"trainer.total_training_steps={steps}",
            "trainer.save_freq=1",
            "trainer.resume_mode=auto",
            *more,
        )
        return asked(folder)

    straight = run(tmp_path / "straight", 6)
    assert [sum(text.startswith("b") for text in step) for step in straight] == [6] * 6, (
        "3 of 4 prompts, two answers each"
    )
    assert run(tmp_path / "stopped", 2) == straight[:2]  # the end of an epoch: 9 rows are two batches of 4
    assert run(tmp_path / "stopped", 6) == straight


def test_what_is_left_out_and_cut_is_counted(tmp_path):
    write_prompts(tmp_path / "train.jsonl")
    left = train(tmp_path, "data.max_prompt_length=4", "data.filter_overlong_prompts=true").metrics[-1]
    assert (left["data/filtered_prompts"], left["data/truncated_prompts"]) == (3, 0)
    cut = train(tmp_path, "data.max_prompt_length=4", "data.truncation=left").metrics[-1]
    assert (cut["data/filtered_prompts"], cut["data/truncated_prompts"]) == (0, 3)


def test_a_class_from_a_file_feeds_a_run(tmp_path):
    (tmp_path / "mine.py").write_text(
        "class Mine:\n"
        "    def __init__(self, files, config, tokenizer, max_samples):\n"
        "        self.rows = [tokenizer.encode('a' * (1 + n)) for n in range(8)]\n"
        "    def __len__(self):\n"
        "        return len(self.rows)\n"
        "    def __getitem__(self, n):\n"
        "        return {'prompt_ids': self.rows[n], 'data_source': 'count_letter', 'reward_model': {'ground_truth': 'a'}}\n"
    )
    run = train(
        tmp_path,
        f"data.custom_cls.path={tmp_path / 'mine.py'}",
        "data.custom_cls.name=Mine",
        f"trainer.rollout_data_dir={tmp_path / 'dumps'}",
    )
    assert len(run.metrics) == 2
    assert len({text for step in asked(tmp_path) for text in step}) == 8
