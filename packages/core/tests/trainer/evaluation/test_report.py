from rl_core.trainer.evaluation.report import tables
from rl_core.trainer.evaluation.scores import Answer, score_sources


def shown(count=8, sizes=(1, 2, 4, 8), source="DigitalLearningGmbH/MATH-lighteval", **lost):
    answers = [Answer(0, source, 1.0, True, 1234, is_cut=True) for _ in range(count)]
    answers += [Answer(1, "short", None, None, None, is_cut=False) for _ in range(lost.get("failed", 0))]
    return tables(score_sources(answers, list(sizes)), 1.0)


def test_every_line_fits_80_columns_whatever_the_names_and_sizes():
    text = shown(count=4096, sizes=[2**power for power in range(13)], failed=2)
    assert max(map(len, text.splitlines())) <= 80
    assert all(f"pass@{2**power}" in text for power in range(13))


def test_numbers_losses_and_what_a_pass_is():
    text = shown(failed=8)
    (row,) = [line.split() for line in text.splitlines() if line.startswith("short") and "%" not in line][:1]
    assert row == ["short", "1", "8", "-", "-", "-", "8", "0"]
    assert "short, pass@8: 1 of 1 prompts have fewer than 8 scored answers and are left out." in text
    assert "all, pass@1: 1 of 2" in text
    assert "else its score, >= 1." in text


def test_plain_text_without_escapes_and_trailing_blanks():
    text = shown()
    assert "\x1b" not in text
    assert all(line == line.rstrip() for line in text.splitlines())
