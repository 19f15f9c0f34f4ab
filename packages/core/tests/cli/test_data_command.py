from __future__ import annotations

import json

import pyarrow
import pyarrow.parquet
import pytest
from rl_core.cli.data_command import main
from rl_core.errors import ConfigError, DataError
from rl_core.plugins import BackendRecord, RewardRecord

FAKES = ["actor_rollout_ref.actor.strategy=one", "--model", "any"]
SFT_FAKES = ["engine.strategy=one", "--model", "any"]


@pytest.fixture(autouse=True)
def parts(register):
    register(
        "rl-fakes",
        BackendRecord(name="one", target="m:t", summary="One.", tokenizer="rl_testing.fakes.tokenizer:load_tokenizer"),
        RewardRecord(name="letters", target="m:t", summary="Letters."),
        RewardRecord(
            name="sums",
            aliases=("adding",),
            prefixes=("sums2",),
            capabilities=frozenset({"ground_truth"}),
            target="m:t",
            summary="Sums.",
        ),
    )


@pytest.fixture
def file(tmp_path):
    def file(*rows, name="d.jsonl"):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(tmp_path / name)

    return file


def prompt(text, **more):
    return {"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": text}]} | more


def test_prompts_as_the_model_sees_them(file, capsys):
    rows = [prompt("hello" * n, data_source="letters") for n in range(1, 9)]
    assert main(["show", file(*rows), "--rows", "2", *FAKES]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("-- row 0 ---")
    assert lines[0].endswith("--- letters · 30 tokens")
    assert lines[1] == "roles: system > user"
    assert lines[3:7] == ["  system:s", "  user:hello", "  assistant:", ""]
    assert "-- row 1" in lines[7]
    assert not any("-- row 2" in line for line in lines)
    text = "\n".join(lines)
    assert "rows         8 prompts" in text
    assert "tokens       30 to 65, median 50, 95% at most 65" in text
    assert "over-long    0 of 8 longer than data.max_prompt_length=512" in text
    assert "letters: 8 (reward installed)" in text
    assert max(map(len, lines)) <= 80


def tells(out, text):
    """A line with a long path is folded anywhere."""
    return text.replace(" ", "") in out.replace(" ", "")


def test_what_training_would_refuse_is_listed_and_the_exit_status_is_2(file, capsys):
    path = file(prompt("a", data_source="nobody"), {"question": "b"}, prompt("c" * 50, data_source="letters"))
    assert main(["show", path, "data.max_prompt_length=40", *FAKES]) == 2
    out = " ".join(capsys.readouterr().out.split())
    assert tells(out, "d.jsonl: row 1 has no column 'prompt'")
    assert tells(out, "d.jsonl: row 2: the prompt has 75 tokens, data.max_prompt_length is 40")
    assert "row 0 has data_source 'nobody', for which no reward is installed" in out
    assert "refused: row 1 has no column" in out


def test_without_a_model_a_row_without_a_prompt_or_a_source_is_refused_too(file, capsys):
    path = file(prompt("a", data_source="lettres"), {"data_source": "letters"}, prompt("b"))
    assert main(["show", path, "actor_rollout_ref.actor.strategy=fake"]) == 2
    out = " ".join(capsys.readouterr().out.split())
    assert tells(out, "d.jsonl: row 1 has no column 'prompt'")
    assert "'lettres', for which no reward is installed (did you mean letters?): give" in out
    assert tells(out, "d.jsonl: row 2 has no data_source: give")
    assert "none: 1 (no reward installed)" in out


def test_a_reward_is_found_by_alias_and_prefix_and_a_row_that_it_has_nothing_to_compare_with_is_refused(file, capsys):
    right, wrong = {"reward_model": {"ground_truth": 0}}, {"reward_model": {"style": "rule"}}
    rows = [prompt("a", data_source="adding", **right), prompt("b", data_source="sums2026", **right)]
    assert main(["show", file(*rows), *FAKES]) == 0
    out = capsys.readouterr().out
    assert "adding: 1 (reward installed)" in out
    assert "sums2026: 1 (reward installed)" in out
    rows += [
        prompt("c", data_source="adding", **wrong),
        prompt("d", data_source="adding"),
        prompt("e", data_source="letters"),
    ]
    assert main(["show", file(*rows), *FAKES]) == 2
    assert tells(
        capsys.readouterr().out.replace("\n", ""),
        "row 2 has no ground truth, with which the reward 'adding' compares (2 such",
    )
    assert main(["show", file(*rows), "custom_reward_function.name=sums", *FAKES]) == 2
    assert tells(capsys.readouterr().out.replace("\n", ""), "with which the reward 'sums' compares (3 such rows)")


def test_a_reward_of_the_runs_own_scores_every_source(file, capsys):
    path = file(prompt("a", data_source="nobody"))
    assert main(["show", path, "custom_reward_function.path=r.py", *FAKES]) == 0
    assert "nobody: 1 (scored by the run's own reward)" in capsys.readouterr().out


def test_long_rows_are_cut_or_left_out_as_configured(file, capsys):
    path = file(prompt("a" * 50, data_source="letters"), prompt("b", data_source="letters"))
    options = [path, "data.max_prompt_length=40", *FAKES]
    assert main(["show", *options, "data.truncation=left"]) == 0
    out = capsys.readouterr().out
    assert "cut: 35 tokens dropped (data.truncation=left)" in out
    assert "over-long    1 of 2 longer than data.max_prompt_length=40: cut (left)" in out
    assert main(["show", *options, "data.filter_overlong_prompts=true"]) == 0
    assert "left out: longer than data.max_prompt_length=40" in capsys.readouterr().out
    assert main(["show", *options, "data.max_prompt_length=5", "data.filter_overlong_prompts=true"]) == 2
    assert "every row is left out" in capsys.readouterr().out


def test_learned_tokens_of_conversations_are_marked(file, capsys):
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "yes"}]
    path = file({"messages": turns}, {"messages": turns[:1]})
    assert main(["show", path, *SFT_FAKES]) == 0
    out = capsys.readouterr().out
    assert "assistant:«yes\n  »" in out or "assistant:«yes»" in out
    assert "learned" in out
    assert "left out: no token of it would be learned" in out
    assert "left out   1 of 2: no token of it would be learned" in out
    assert main(["show", path, *SFT_FAKES, "--color", "always"]) == 0
    out = capsys.readouterr().out
    assert "\x1b[32myes" in out
    assert "«" not in out


def test_pairs_show_both_sides(file, capsys):
    sides = [[{"role": "user", "content": "q"}, {"role": "assistant", "content": word}] for word in ("good", "bad")]
    path = file({"chosen": sides[0], "rejected": sides[1]}, {"chosen": sides[0], "rejected": sides[0]})
    assert main(["show", path, *SFT_FAKES]) == 0
    out = capsys.readouterr().out
    assert "chosen · 22 tokens" in out
    assert "rejected · 21 tokens" in out
    assert "2 pairs" in out
    assert "left out   1 of 2: both sides are the same tokens" in out
    assert main(["show", path, "data.max_length=21", *SFT_FAKES]) == 2
    assert "row 0: chosen has 22 tokens, more than data.max_length=21" in " ".join(capsys.readouterr().out.split())
    assert main(["show", path, "data.max_length=21", "data.truncation=left", *SFT_FAKES]) == 0
    assert "cut: 1 tokens dropped (data.truncation=left)" in capsys.readouterr().out
    assert main(["show", path, "data.max_length=21", "data.truncation=drop", *SFT_FAKES]) == 0
    assert "left out: longer than data.max_length=21" in capsys.readouterr().out
    assert main(["show", file({"chosen": sides[0], "rejected": "?"}), *SFT_FAKES]) == 2
    assert "row 0: rejected is a text that is not valid JSON" in capsys.readouterr().out


def test_without_a_model_texts_are_shown_and_nothing_is_counted(file, capsys):
    assert main(["show", file(prompt("hello", data_source="letters"))]) == 0
    out = capsys.readouterr().out
    assert "  [user]\n  hello" in out
    assert "not counted: give --model PATH" in out


def test_tools_and_several_files(file, capsys, tmp_path):
    tool = {"type": "function", "function": {"name": "calc"}}
    paths = [
        file(prompt("a", data_source="letters", tools=[tool])),
        file(prompt("b", data_source="letters"), name="e.jsonl"),
    ]
    assert main(["show", *paths, *FAKES]) == 0
    out = capsys.readouterr().out
    assert "tools: calc" in out
    assert f"-- row 0 of {paths[1]}"[:40] in out
    assert "tool:#" not in out


def test_parquet_and_long_rows(tmp_path, capsys):
    path = tmp_path / "d.parquet"
    rows = [prompt("\n".join(str(number) for number in range(60)), data_source="letters")]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    assert main(["show", str(path), *FAKES]) == 0
    out = capsys.readouterr().out
    assert "... 38 lines, see --full ..." in out
    assert "\n  30\n" not in out
    assert main(["show", str(path), *FAKES, "--full"]) == 0
    assert "\n  30\n" in capsys.readouterr().out


def test_what_a_terminal_would_obey_is_written_out(file, capsys):
    assert main(["show", file(prompt("\x1b[31mred\ttab", data_source="letters"))]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert r"\x1b[31mred\ttab" in out


def test_mistakes_of_the_command_line(file):
    path = file(prompt("a"))
    with pytest.raises(ConfigError, match="rl data does not know 'shwo'"):
        main(["shwo", path])
    with pytest.raises(ConfigError, match=r"there is no key data\.max_prompt_lenth"):
        main(["show", path, "data.max_prompt_lenth=3"])
    with pytest.raises(ConfigError, match="no file is given"):
        main(["show", "data.max_prompt_length=3"])
    with pytest.raises(DataError, match="does not exist"):
        main(["show", f"{path}x"])
    with pytest.raises(DataError, match=r"row 0 holds neither a prompt .* it has question"):
        main(["show", file({"question": "a"})])


def test_another_column_holds_the_prompt(file, capsys):
    assert main(["show", file({"question": "abc", "data_source": "letters"}), "data.prompt_key=question", *FAKES]) == 0
    assert "  abc" in capsys.readouterr().out


def test_over_long_rows_that_are_refused_are_counted_with_the_others(file, capsys):
    path = file(prompt("a" * 50, data_source="letters"), prompt("b", data_source="letters"))
    assert main(["show", path, "data.max_prompt_length=40", *FAKES]) == 2
    out = capsys.readouterr().out
    assert "over-long    1 of 2 longer than data.max_prompt_length=40: refused" in out
    assert "tokens       26 to 75" in out
