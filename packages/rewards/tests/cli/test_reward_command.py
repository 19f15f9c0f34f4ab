import json
import re

import pytest
from rl_core.cli.main import main
from rl_rewards.cli.reward_command import reference

pytestmark = pytest.mark.heavy


@pytest.fixture
def rl(capsys):
    def run(*arguments):
        status = main([*map(str, arguments)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def row(truth, source="openai/gsm8k", **extra):
    return {
        "data_source": source,
        "prompt": [{"role": "user", "content": "3 + 4?"}],
        "reward_model": {"ground_truth": truth},
        "extra_info": extra or None,
    }


@pytest.fixture
def data(tmp_path):
    return write(tmp_path / "rows.jsonl", row("7", answer="3 + 4 = 7\n#### 7"), row("8"), row("1/2", "math"))


def test_references_score_full_marks_by_data_source(rl, data):
    status, out, _ = rl("reward", "try", "--data", data)
    assert status == 0
    assert out.splitlines()[0].split() == ["ROW", "DATA", "SOURCE", "SCORE", "SECONDS", "ERROR,", "OR", "PARTS"]
    assert "3 rows: mean score 1.0000, 3 with 1.0, 0 with 0.0, 0 missing; slowest" in out


def test_given_responses(rl, data, tmp_path):
    _, out, _ = rl("reward", "try", "--data", data, "--name", "gsm8k", "--limit", 2, "--response", "#### 7")
    assert "2 rows: mean score 0.5000, 1 with 1.0, 1 with 0.0" in out
    file = write(tmp_path / "said.jsonl", "it is 7", {"response": "it is 8"}, {"output": "it is 9"})
    command = ("reward", "try", "--data", data, "--name", "gsm8k", "--responses", file)
    _, out, _ = rl(*command, "--limit", 2, "--set", "method=flexible")
    assert "give one for each" in rl(*command, "--limit", 2)[2]
    _, out, _ = rl("reward", "try", "--data", data, "--response", "#### 8", "--skip", 1, "--limit", 1, "--all")
    assert re.search(r"^ +1 +openai/gsm8k +1 ", out, re.MULTILINE)


def test_a_missing_reward_is_an_exit_status_and_has_its_reason(rl, tmp_path):
    data = write(tmp_path / "rows.jsonl", row("7"), row("seven"))
    status, out, _ = rl("reward", "try", "--data", data)
    assert status == 1
    assert "missing" in out
    assert "GroundTruthError: ground truth 'seven' is not a number" in " ".join(out.split())
    assert "2 rows: mean score 1.0000, 1 with 1.0, 0 with 0.0, 1 missing" in out


def test_a_function_of_ones_own_that_never_ends(rl, data, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import time\n"
        "def score(solution_str, ground_truth, bonus=0):\n"
        "    time.sleep(60 if ground_truth == '8' else 0)\n"
        "    return {'score': 1 + bonus, 'length': len(solution_str)}\n"
    )
    command = ("reward", "try", "--data", data, "--path", file, "--name", "score", "--set", "bonus=0.5", "--timeout", 1)
    status, out, _ = rl(*command)
    assert status == 1
    assert "no score within 1.0 s" in " ".join(out.split())
    assert "1.5" in out
    assert "length=" in out


def test_mistakes(rl, data):
    assert "does not know 'fry'" in rl("reward", "fry", "--data", data)[2]
    assert "reward 'gsm9k' is not known" in rl("reward", "try", "--data", data, "--name", "gsm9k")[2]
    assert "does not exist" in rl("reward", "try", "--data", "absent.jsonl")[2]
    assert "both given" in rl("reward", "try", "--data", data, "--response", "x", "--responses", data)[2]


def test_references():
    assert reference({"extra_info": {"solution": "s"}}) == "s"
    text = "#### x\nAnswer: x\n<answer>x</answer>"
    assert reference({"reward_model": {"ground_truth": "x"}}) == text
    assert reference({"reward_model": {"ground_truth": {"target": ["x", "y"]}}, "extra_info": {"answer": None}}) == text
