"""The scripts that make data: each on a tiny local source, and what they say when they have none."""

import importlib
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "data_preprocess"

PROBLEM = {
    "problem": "Half of $3$?",
    "solution": "It is $\\boxed{\\frac{3}{2}}$.",
    "level": "Level 1",
    "type": "Algebra",
}
SUM = {"question": "Two and two?", "answer": "2+2=<<2+2=4>>4\n#### 4"}
DAPO = {
    "prompt": [{"role": "user", "content": "Solve. Answer: $Answer"}],
    "reward_model": {"ground_truth": "34", "style": "rule-lighteval/MATH_v2"},
}
TURNS = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]


@pytest.fixture
def run(monkeypatch, capsys):
    """The exit code of a script and what it wrote to stderr; in this process, since most of a start is imports."""
    monkeypatch.syspath_prepend(str(FOLDER))
    before = set(sys.modules)

    def run(script, *arguments):
        code = importlib.import_module(script).main([str(argument) for argument in arguments])
        return code, capsys.readouterr().err

    yield run
    for name in set(sys.modules) - before:
        if (FOLDER / f"{name}.py").is_file():
            del sys.modules[name]


@pytest.fixture
def made(run, tmp_path):
    """Rows of a file that a script writes."""

    def made(script, *arguments, split="train"):
        code, errors = run(script, "--local_dir", tmp_path / "out", *arguments)
        assert code == 0, errors
        return pyarrow.parquet.read_table(tmp_path / "out" / f"{split}.parquet").to_pylist()

    return made


@pytest.fixture
def failed(run, tmp_path):
    """What a script says that cannot do its work."""

    def failed(script, *arguments):
        code, errors = run(script, "--local_dir", tmp_path / "out", *arguments)
        assert code == 2
        return errors

    return failed


@pytest.fixture
def source(tmp_path):
    def source(*rows, splits=("train", "test")):
        (tmp_path / "in").mkdir()
        for split in splits:
            (tmp_path / "in" / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return "--local_dataset_path", tmp_path / "in"

    return source


def test_math(made, source):
    (row,) = made("math_dataset", *source(PROBLEM), split="test")
    assert row["reward_model"]["ground_truth"] == "\\frac{3}{2}"
    assert row["data_source"] == "DigitalLearningGmbH/MATH-lighteval"
    assert row["extra_info"] == {"split": "test", "index": 0, "level": "Level 1", "type": "Algebra"}


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        ("\\boxed{1} then \\boxed{2}", "2"),
        ("\\fbox{\\text{(C)}}", "\\text{(C)}"),
        ("so $\\boxed 7$.", "7"),
        ("$\\boxed{ }$", None),
        ("\\boxed{3", None),
        ("nothing", None),
    ],
)
def test_math_takes_what_is_boxed_last(made, failed, source, solution, answer):
    arguments = source(PROBLEM | {"solution": solution})
    if answer is None:
        assert "train row 0: the solution boxes no answer" in failed("math_dataset", *arguments)
    else:
        assert made("math_dataset", *arguments)[0]["reward_model"]["ground_truth"] == answer


def reaches(numbers, target):
    """Whether the numbers, each used once, make the target."""
    if len(numbers) == 1:
        return numbers[0] == target
    for i, a in enumerate(numbers):
        for j, b in enumerate(numbers):
            if i != j:
                rest = [n for k, n in enumerate(numbers) if k not in (i, j)]
                values = {a + b, a - b, a * b, *([a / b] if b else [])}
                if any(reaches([*rest, value], target) for value in values):
                    return True
    return False


def test_countdown_puzzles_can_be_solved_and_are_all_different(made, tmp_path):
    arguments = ("--train_size", 30, "--test_size", 10, "--numbers", 3, "--seed", 5)
    train = made("countdown", *arguments)
    test = pyarrow.parquet.read_table(tmp_path / "out" / "test.parquet").to_pylist()
    puzzles = [row["reward_model"]["ground_truth"] for row in train + test]
    assert (len(train), len(test)) == (30, 10)
    assert all(reaches(puzzle["numbers"], puzzle["target"]) for puzzle in puzzles)
    assert len({(tuple(sorted(p["numbers"])), p["target"]) for p in puzzles}) == 40
    assert made("countdown", *arguments) == train


@pytest.mark.heavy
def test_reasoning_gym_tasks(made, failed):
    arguments = ("--task", "chain_sum", "--task", "spell_backward", "--train_size", 3, "--test_size", 2)
    rows = made("reasoning_gym_tasks", *arguments)
    assert Counter(row["data_source"] for row in rows) == {
        "reasoning_gym/chain_sum": 3,
        "reasoning_gym/spell_backward": 3,
    }
    entry = json.loads(rows[0]["reward_model"]["ground_truth"])
    assert entry["question"] in rows[0]["prompt"][0]["content"]
    assert entry["metadata"]["source_dataset"] == "chain_sum"
    told = failed("reasoning_gym_tasks", "--task", "chain_sum", "--option", "colour=red")
    assert "cannot make 'chain_sum' with {'colour': 'red'}" in told


def test_dapo_problems_are_written_once(made, tmp_path, source):
    other = DAPO | {"prompt": [{"role": "user", "content": "Another?"}]}
    rows = made("dapo_math", *source(DAPO, DAPO, other, splits=["train"]), "--test_size", 1)
    assert [row["reward_model"]["ground_truth"] for row in rows] == ["34"]
    assert rows[0]["data_source"] == "math_dapo"
    assert pyarrow.parquet.read_metadata(tmp_path / "out" / "test.parquet").num_rows == 1


def test_dapo_problems_with_two_answers(failed, source):
    arguments = source(DAPO, DAPO | {"reward_model": {"ground_truth": "35"}}, splits=["train"])
    assert "train rows 0 and 1 have one prompt and two answers, '34' and '35'" in failed("dapo_math", *arguments)


def test_pairs_of_messages_and_of_texts(made, source):
    worse = [TURNS[0], {"role": "assistant", "content": "No"}]
    text = {"chosen": "\n\nHuman: Hi\n\nAssistant: Hello", "rejected": "\n\nHuman: Hi\n\nAssistant: No"}
    same = {"chosen": TURNS, "rejected": TURNS}
    arguments = source({"chosen": TURNS, "rejected": worse}, text, same)
    rows = made("preference_pairs", *arguments)
    assert [(row["chosen"], row["rejected"]) for row in rows] == [(TURNS, worse)] * 2


def test_a_pair_that_does_not_end_with_the_assistant(failed, source):
    told = failed("preference_pairs", *source({"chosen": TURNS, "rejected": TURNS[:1]}))
    assert "train row 0: rejected must be a conversation that ends with the assistant" in told


def test_gsm8k_with_a_calculator(made, tmp_path, source):
    (row,) = made("gsm8k_tools", *source(SUM))
    assert [turn["role"] for turn in row["prompt"]] == ["system", "user"]
    assert row["agent_name"] == "tool_agent"
    assert row["extra_info"]["tools_kwargs"] == {"calculator": {"create_kwargs": {"ground_truth": "4"}}}
    schema = json.loads((tmp_path / "out" / "tools.yaml").read_text())["tools"][0]["tool_schema"]
    assert row["extra_info"]["tool_selection"] == [schema["function"]["name"]] == ["calculator"]


@pytest.mark.parametrize("script", ["math_dataset", "dapo_math", "preference_pairs", "gsm8k_tools"])
class TestWithoutASource:
    def test_without_the_library_or_a_network(self, failed, script, monkeypatch):
        monkeypatch.setitem(sys.modules, "datasets", None)
        told = failed(script)
        assert "could not be loaded from the Hub or its cache" in told
        assert "--local_dataset_path PATH" in told

    def test_a_folder_without_the_split(self, failed, script, tmp_path):
        told = failed(script, "--local_dataset_path", tmp_path)
        assert "nor a folder with train.jsonl, train.json or train.parquet" in told

    def test_rows_of_another_form(self, failed, script, tmp_path, source):
        assert "train row 0 has no '" in failed(script, *source({"x": 1}))
        (tmp_path / "in" / "train.jsonl").write_text("{")
        assert "train.jsonl cannot be read" in failed(script, "--local_dataset_path", tmp_path / "in")


@pytest.mark.heavy
def test_scripts_that_share_modules_run_from_anywhere(tmp_path, source):
    command = [sys.executable, str(FOLDER / "gsm8k_tools.py"), "--local_dir", tmp_path / "out", *source(SUM)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "wrote the tool to" in done.stdout
