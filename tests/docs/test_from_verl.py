"""docs/from-verl.md against the configuration, a run's metrics, and the keys of verl in verl_keys.txt."""

from __future__ import annotations

import json
import re
from itertools import product

import pytest
import yaml
from fakes_training import overrides, write_prompts
from rl_core.config import compose_leniently
from rl_core.config.aliases import ALIASES, OFFLINE_ALIASES, OFFLINE_KEEP_NEWEST, apply_aliases, plugin_aliases
from rl_core.config.inert import COMPATIBILITY, LATER, matches
from rl_core.config.layout import SFT
from rl_core.config.nested import leaves, set_path
from rl_core.config.values import sort_values
from rl_core.plugins import Registry
from rl_core.plugins.selection import Selection
from rl_core.trainer.main_ppo import main as train
from source_tree import ROOT

PAGE = (ROOT / "docs/from-verl.md").read_text()
LINES = [line for line in (ROOT / "tests/docs/verl_keys.txt").read_text().splitlines() if not line.startswith("#")]
VERL = {key: text for key, _, text in (line.partition(": ") for line in LINES)}
"""Key -> its default as YAML, empty where it is no constant."""


def table(title: str) -> list[list[str]]:
    """Cells of the table below a heading, without its header."""
    section = re.split(r"^#+ ", PAGE.split(f" {title}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@pytest.fixture(scope="module")
def schema():
    """Every key there is, the usual engines' own included."""
    registry = Registry(Selection())
    registry.load_entry_points()
    keys = ["actor_rollout_ref.model.path=m", "actor_rollout_ref.rollout.name=hf"]
    return compose_leniently(keys, registry=registry).config.schema


@pytest.fixture(scope="module")
def read_as(schema):
    """Verl's key -> the keys that it is read as here; none where it is refused."""

    def read_as(key):
        given = {}
        set_path(given, key, True)
        apply_aliases(given, ALIASES)
        for mount in schema.mounts:
            names = (mount.record.name, *mount.record.aliases)
            apply_aliases(given, plugin_aliases(mount.section, mount.key, names))
        # A section with a value of its own is no key; what matters here is that it is there.
        return [path for path, _ in leaves(given) if path in schema.sections or not sort_values(given, schema).unknown]

    return read_as


def covers(patterns, key):
    return any(matches(pattern, key) for pattern in patterns)


def test_every_key_of_verl_is_accepted_or_said_to_be_refused(read_as):
    refused = [pattern for row in table("Refused") for pattern in code(row[0]) if "." in pattern]
    silent = [key for key in VERL if not read_as(key) and not covers(refused, key)]
    assert silent == []
    assert [pattern for pattern in refused if not any(matches(pattern, key) for key in VERL)] == []
    assert [key for key in VERL if covers(refused, key) and read_as(key)] == []


def renamed(key, rows):
    """What the page's table of spellings makes of a key: the first row that covers it."""
    for left, right in rows:
        (old,) = code(left)
        if matches(old, key):
            tail = key.removeprefix(old.removesuffix(".*"))
            return sorted(new.removesuffix(".*") + tail for new in code(right))
    return [key]


def test_spellings_are_read_as_the_page_says(read_as):
    rows = table("Other spellings")
    wrong = {key: renamed(key, rows) for key in VERL if read_as(key) and renamed(key, rows) != sorted(read_as(key))}
    assert wrong == {}
    assert [row[0] for row in rows if not any(matches(code(row[0])[0], key) for key in VERL)] == []


def test_keys_that_the_page_names_exist(read_as):
    page = re.sub(r"^### Keys of fine-tuning$.*?(?=^## )", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    keys = {
        text.removesuffix(".*")
        for text in code(prose)
        if re.fullmatch(r"(data|trainer|algorithm|critic|reward_model|actor_rollout_ref)(\.\w+)+(\.\*)?", text)
    }
    refused = {pattern.removesuffix(".*") for row in table("Refused") for pattern in code(row[0])}
    assert len(keys) > 60
    assert [key for key in sorted(keys - refused) if not read_as(key)] == []


def test_keys_of_fine_tuning():
    registry = Registry(Selection())
    registry.load_entry_points()
    schema = compose_leniently(["model.path=m"], registry=registry, layout=SFT).config.schema
    for verl, here, what in table("Keys of fine-tuning"):
        (old,) = code(verl)
        given = {}
        set_path(given, old, True)
        apply_aliases(given, OFFLINE_ALIASES, OFFLINE_KEEP_NEWEST)
        read_as = [path for path, _ in leaves(given)]
        assert old not in schema.keys
        assert set(code(here)) <= set(schema.keys)
        if what == "accepted":
            assert read_as == code(here)
        else:
            assert what.startswith("refused: ")
            assert read_as == [old]
            assert sort_values(given, schema).unknown
    assert {old for old, _ in OFFLINE_ALIASES if "modules" not in old} <= {
        code(row[0])[0] for row in table("Keys of fine-tuning")
    }


def test_defaults_that_differ_are_exactly_those_of_the_page(schema, read_as):
    def ours(key):
        (path,) = read_as(key)
        default = schema.keys[path].default
        return list(default) if isinstance(default, tuple) else default

    told = {
        code(key)[0]: tuple(yaml.safe_load(code(cell)[0]) for cell in (verl, here))
        for key, verl, here in table("Other defaults")
    }
    differ = {
        key: (yaml.safe_load(text), ours(key))
        for key, text in VERL.items()
        if text and yaml.safe_load(text) != ours(key)
    }
    assert told == differ


def test_what_is_not_here_yet_is_exactly_what_the_configuration_says():
    assert {what: tuple(code(keys)) for what, keys in table("Accepted, not here yet")} == dict(LATER)


def test_keys_with_nothing_to_do_are_listed(read_as):
    section = PAGE.split("### Accepted, nothing to do\n", 1)[1].split("\n### ", 1)[0]
    patterns = [pattern for _, patterns in COMPATIBILITY for pattern in patterns]
    told = set(code(section))
    assert [key for key in sorted(told) if not covers(patterns, key)] == []
    inert = {path for key in VERL for path in read_as(key) if covers(patterns, path)}
    assert [path for path in sorted(inert) if not covers([f"{key}.*" for key in told], path)] == []


@pytest.mark.parametrize(
    "line", [text for row in table("Commands and imports") for text in code(row[1]) if text.startswith("from ")]
)
def test_imports_work(line):
    exec(line, {})


def expanded(text):
    """`a/{b,c}` as a/b and a/c."""
    parts = [part.strip("{}").split(",") if part.startswith("{") else [part] for part in re.split(r"(\{[^}]*\})", text)]
    return ["".join(choice) for choice in product(*parts)]


def test_metrics_are_those_of_a_run(tmp_path, installed_fakes):
    rows = write_prompts(tmp_path / "train.jsonl")
    keys = ["actor_rollout_ref.actor.entropy_coeff=0.01", f"data.val_files={rows}"]
    assert train(overrides(tmp_path, "algorithm.adv_estimator=gae", *keys)) == 0
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    logged = {name for line in lines for name in json.loads(line)}
    told = [name for row in table("Metrics") for text in code(row[1]) for name in expanded(text)]
    assert len(told) > 15
    assert [name for name in told if name not in logged] == []
    gone = [name for row in table("Metrics") if row[1] == "-" for name in code(row[0])]
    assert [
        name for name in gone if any(matches(name.replace("/", "."), key.replace("/", ".")) for key in logged)
    ] == []
