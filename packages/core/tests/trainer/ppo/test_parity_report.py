import json
import math

import pytest
import torch
from rl_core.trainer.json_text import to_json
from rl_core.trainer.ppo.parity_causes import Setting
from rl_core.trainer.ppo.parity_outliers import find_outliers
from rl_core.trainer.ppo.parity_report import parity_report
from rl_core.trainer.ppo.parity_tokens import parity_tokens
from rl_dataproto import DataProto, jagged_from_rows, object_array
from rl_testing.fakes.tokenizer import TinyTokenizer

TOKENIZER = TinyTokenizer()


def ids(text):
    return torch.tensor(TOKENIZER.encode(text))


def batch(gaps, **tensors):
    """Two responses; the trainer's log-probs are -1, the generator's lie ``gaps`` above."""
    rows = [torch.tensor(row) for row in gaps]
    columns = {
        "prompts": [ids("how many?"), ids("a long prompt of many tokens:")],
        "responses": [ids("seven.\n"), ids("ab")],
        "response_mask": [torch.ones(len(row), dtype=torch.bool) for row in rows],
        "rollout_log_probs": [row - 1 for row in rows],
        "old_log_probs": [torch.full_like(row, -1.0) for row in rows],
    }
    return DataProto.from_dict(
        tensors={name: jagged_from_rows(column) for name, column in columns.items()} | tensors,
        non_tensors={"uid": object_array(["p0", "p1"])},
    )


def test_the_worst_tokens_with_the_text_around_them():
    one = batch([[0.0] * 3 + [0.5] + [0.0] * 3, [-0.75, 0.0]], weight_version=torch.tensor([4, 5]))
    first, second = find_outliers(one, parity_tokens(one), TOKENIZER, 2)
    assert (first.uid, first.row, first.position, first.length, first.token, first.version) == ("p1", 1, 0, 2, "a", 5)
    assert (first.before, first.behind) == ("many tokens:", "b")
    assert (first.rollout_log_prob, first.trainer_log_prob) == (-1.75, -1.0)
    assert (second.uid, second.position, second.token, second.version) == ("p0", 3, "e", 4)
    assert (second.before, second.behind) == ("how many?sev", "n.\n")
    line = second.line()
    assert "token 4 of 7" in line
    assert "how many?sev⟦e⟧n.\\n" in line


def test_what_is_no_number_comes_first_and_is_written_as_null():
    one = batch([[0.0, 0.3, 0.0, 0.0, 0.0, math.nan, 0.0], [0.0, 0.0]])
    (worst,) = find_outliers(one, parity_tokens(one), TOKENIZER, 1)
    assert worst.position == 5
    assert json.loads(to_json(worst.record()))["rollout_log_prob"] is None
    assert find_outliers(one, parity_tokens(one), TOKENIZER, 0) == []


def test_the_record_and_the_lines_of_a_report():
    one = batch([[0.25] * 7, [0.25] * 2])
    report = parity_report(one, Setting(), TOKENIZER, 3)
    record = json.loads(to_json(report.record(7)))
    assert (record["step"], record["num_tokens"], record["cause"]["name"]) == (7, 9, "unknown")
    assert record["metrics"]["training/logprob_gap/mean"] == pytest.approx(0.25)
    assert {part["what"] for part in record["parts"]} >= {"first token", "probability 0.1 to 0.5"}
    assert len(record["outliers"]) == 3
    table = report.table()
    assert table[0].split() == ["tokens", "9"]
    assert "mean 0.25, max 0.25 nats" in table[1]
    assert "not defined" in "".join(table)
    assert report.conclusion()[0].startswith("cause: unknown")


def test_a_report_without_anything_to_explain_shows_no_tokens():
    report = parity_report(batch([[0.0] * 7, [0.0] * 2]), Setting(), TOKENIZER, 3)
    assert report.conclusion() == ["cause: none: the gap is what float32 on both sides leaves."]


def test_older_weights_are_told_apart():
    current = jagged_from_rows([torch.tensor([True] * 4 + [False] * 3), torch.tensor([True, True])])
    mixed = batch([[0.0] * 4 + [0.5] * 3, [0.0, 0.0]], on_policy_mask=current)
    report = parity_report(mixed, Setting(), TOKENIZER, 3)
    assert report.cause.name == "none"
    assert report.staleness.name == "older weights"
    assert report.staleness.share == pytest.approx(1.0)
    assert "3 of 9 tokens" in report.staleness.evidence
    assert report.num_tokens == 6

    alike = batch([[0.5] * 7, [0.5] * 2], on_policy_mask=current)
    assert parity_report(alike, Setting(), TOKENIZER, 3).staleness is None


def test_older_weights_alone_and_nothing():
    none = jagged_from_rows([torch.zeros(7, dtype=torch.bool), torch.zeros(2, dtype=torch.bool)])
    report = parity_report(batch([[0.5] * 7, [0.5] * 2], on_policy_mask=none), Setting(), TOKENIZER, 2)
    assert report.metrics == {"training/rollout_probs_diff_valid": 0.0}
    assert report.cause.evidence == "older weights drew every token"
    assert len(report.outliers) == 2
    assert report.table()[0].split() == ["tokens", "0"]
    one = batch([[0.0] * 7, [0.0] * 2])
    assert parity_report(one.select(["response_mask"]), Setting(), TOKENIZER, 2) is None
