"""`docs/metrics.md` names every number that a run prints, and no number that nothing can print."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest
from fakes_training import train, write_prompts
from source_tree import ROOT

TEXT = (ROOT / "docs/metrics.md").read_text()
ACTOR = "actor_rollout_ref.actor"


def expanded(pattern: str) -> list[str]:
    """`a/{b,c}` -> `a/b`, `a/c`."""
    parts = re.split(r"\{([^}]*)\}", pattern)
    choices = [part.split(",") if number % 2 else [part] for number, part in enumerate(parts)]
    return ["".join(chosen) for chosen in product(*choices)]


def rows() -> list[str]:
    """First cells of the tables that list names."""
    cells = re.findall(r"^\| `([^`]+)` \|", TEXT, re.MULTILINE)
    return [name for cell in cells for name in expanded(cell)]


NAMES = rows()


def regex(name: str) -> re.Pattern[str]:
    """The name with each `<...>` as any text; what stands behind `@<N>` belongs to it."""
    literal = [re.escape(part) for part in re.split(r"<[^>]*>", name)]
    return re.compile(".+".join(literal))


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names in the metrics of runs that switch on what a fakes run can."""
    folder: Path = tmp_path_factory.mktemp("metrics")
    validation = write_prompts(folder / "val.jsonl", count=3)
    reward = folder / "reward.py"
    reward.write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    return {'score': len(solution_str) % 2, 'acc': len(solution_str) % 2, 'pred': solution_str[:1]}\n"
    )
    runs = [
        ("algorithm.use_kl_in_reward=true",),
        (
            "algorithm.adv_estimator=grpo",
            f"{ACTOR}.use_kl_loss=true",
            f"{ACTOR}.calculate_entropy=true",
            f"{ACTOR}.policy_loss.loss_mode=kl_cov",
            f"data.val_files={validation}",
            "actor_rollout_ref.rollout.val_kwargs.n=3",
            "actor_rollout_ref.rollout.val_kwargs.temperature=1",
            f"custom_reward_function.path={reward}",
            "custom_reward_function.name=compute_score",
            "trainer.test_freq=1",
            "trainer.save_freq=1",
        ),
    ]
    return {
        name for number, run in enumerate(runs) for step in train(folder / str(number), *run).metrics for name in step
    }


def test_the_page_lists_every_name_once():
    assert len(NAMES) > 100
    assert sorted(NAMES) == sorted(set(NAMES))


def test_every_printed_number_stands_on_the_page(printed: set[str]):
    patterns = [regex(name) for name in NAMES]
    unknown = {name for name in printed - {"step"} if not any(pattern.fullmatch(name) for pattern in patterns)}
    assert unknown == set()


def test_every_name_on_the_page_is_printed_or_written_in_the_source(printed: set[str]):
    """A name that needs a schedule, a device or a recipe: its last literal part must stand in some string of the source."""
    source = "\n".join(path.read_text() for path in sorted(ROOT.glob("packages/*/src/**/*.py")))
    invented = [
        name
        for name in NAMES
        if not any(regex(name).fullmatch(found) for found in printed)
        and re.split(r"<[^>]*>|/", name.rstrip(">"))[-1] not in source
    ]
    assert invented == []
    assert sum(any(regex(name).fullmatch(found) for found in printed) for name in NAMES) > 80


@pytest.mark.parametrize("name", ["training/solve_all", "actor/ess", "actor/kl_cov_frac", "reward_extra/acc/mean"])
def test_the_runs_switch_on_what_the_page_is_about(name: str, printed: set[str]):
    assert name in printed


def test_a_pattern_matches_its_names_only():
    assert expanded("a/{b,c}@<N>") == ["a/b@<N>", "a/c@<N>"]
    assert regex("val/<s>/best@<k>/mean").fullmatch("val/openai/gsm8k/best@4/mean")
    assert not regex("actor/loss").fullmatch("actor/pg_loss")
