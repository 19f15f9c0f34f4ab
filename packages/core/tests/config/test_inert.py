"""Every key does something, or a table says that it does not."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from rl_core.config.handed_over import is_handed_over
from rl_core.config.inert import COMPATIBILITY, LATER, inert_lines, inert_reason
from rl_core.config.layout import LAYOUTS, SFT
from rl_core.config.micro_batch import GLOBAL_KEYS
from rl_core.config.schema import core_schema

PACKAGES = Path(__file__).resolve().parents[3]
CONFIG_ROOM = PACKAGES / "core" / "src" / "rl_core" / "config"
ACTING_HERE = ("batch_math.py", "correction.py", "schedule.py", "roles.py", "micro_batch.py", "runtime_choice.py")
"""Files of the configuration room whose results the trainer acts on; the others only check and print."""

PATTERNS = [pattern for table in (COMPATIBILITY, LATER) for _, patterns in table for pattern in patterns]
GENERIC = {
    "path", "name", "enable", "enabled", "backend", "type", "url", "num_workers", "method", "rollout", "merge", "dropout",
    "dtype", "strict", "format", "metric", "address", "skip", "seed", "shuffle", "strategy", "timeout", "n", "namespace",
}  # fmt: skip
"""Names that many objects have: reading one counts only together with the section's name."""

READ_HERE = {
    "recipe",  # compose, before there is a tree
    "algorithm.allow_kl_in_both",  # contradictions
    "actor_rollout_ref.nccl_timeout",  # runtime_choice
    "trainer.project_name",  # the default of trainer.default_local_dir
    "trainer.experiment_name",
    "trainer.device_memory_gib",  # memory_check
    *(f"{section}.{key}" for section, key in GLOBAL_KEYS),
}
"""Keys that act within this room, by their name."""

HELD_UNDER_ANOTHER_NAME = {
    "actor_rollout_ref.actor.shuffle": ("role", "shuffle"),
    "critic.shuffle": ("role", "shuffle"),
    "reward_model.shuffle": ("role", "shuffle"),
    "algorithm.kl_ctrl.type": ("config", "type"),
}
"""Key with a generic name -> how its reader writes it."""


def sources():
    for path in sorted(PACKAGES.glob("*/src/**/*.py")):
        if CONFIG_ROOM not in path.parents or path.name in ACTING_HERE:
            yield ast.parse(path.read_text(encoding="utf-8"))


def renamed_sections(tree):
    """Local names of sections: ``custom = config.custom_reward_function`` and tuples of such."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=True))
            for name, source in pairs:
                if isinstance(name, ast.Name) and isinstance(source, ast.Attribute):
                    names.setdefault(name.id, set()).add(source.attr)
    return names


@pytest.fixture(scope="module")
def read():
    """Attribute names that any source file reads, and pairs (section, attribute)."""
    names, pairs = set(), set()
    for tree in sources():
        renamed = renamed_sections(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                names.add(node.attr)
                holder = getattr(node.value, "attr", getattr(node.value, "id", None))
                pairs.update((section, node.attr) for section in {holder, *renamed.get(holder, ())})
    return names, pairs


def is_read(key, read):
    names, pairs = read
    section = key.path.rpartition(".")[0].rpartition(".")[2]
    wanted = HELD_UNDER_ANOTHER_NAME.get(key.path, (section, key.name))
    return wanted in pairs or key.path in READ_HERE or (key.name in names and key.name not in GENERIC)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.command)
def test_every_key_is_read_or_handed_over_or_said_to_be_inert(read, layout):
    silent = [
        key.path
        for key in core_schema(layout).keys.values()
        if not (is_read(key, read) or is_handed_over(key.path, layout) or inert_reason(key.path, layout))
    ]
    assert silent == []


def test_no_inert_key_is_read(read):
    """A key that works must not be called inert: the last two parts of its path tell it from its namesakes."""
    _, pairs = read
    lying = []
    for path in core_schema().keys:
        section, _, name = path.rpartition(".")
        if inert_reason(path) is not None and (section.rpartition(".")[2], name) in pairs:
            lying.append(path)
    assert lying == []


def test_no_key_is_both_inert_and_handed_over():
    assert [path for path in core_schema().keys if inert_reason(path) and is_handed_over(path)] == []


def test_tables_name_existing_keys():
    schema = core_schema()
    for pattern in PATTERNS:
        path = pattern.removesuffix(".*")
        assert path in schema.keys or (path != pattern and path in schema.sections), pattern


def test_a_section_covers_what_is_below_it_and_nothing_beside_it():
    assert inert_reason("transfer_queue.enable") is not None
    assert inert_reason("transfer_queue") is not None
    assert inert_reason("transfer_queue_size") is None


def test_other_kinds_of_run_share_what_is_said_about_the_run_itself():
    assert [inert_reason(path, SFT) for path in ("data.filter_prompts", "reward_model.num_workers")] == [None, None]
    assert {path for path in core_schema(SFT).keys if inert_reason(path, SFT)} == {
        path for path in core_schema().keys if inert_reason(path) and path in core_schema(SFT).keys
    }


def test_one_line_for_each_given_key():
    given = ["data.train_batch_size", "data.filter_prompts", "actor_rollout_ref.rollout.mode"]
    lines = inert_lines(given)
    assert [line.partition(" has no effect: ")[0] for line in lines] == [
        "actor_rollout_ref.rollout.mode",
        "data.filter_prompts",
    ]
