from __future__ import annotations

import copy
import pickle

import pytest
from rl_core.config.layout import LAYOUTS, PPO, SFT, layout_of_command
from rl_core.config.schema import core_schema
from rl_core.errors import ConfigError
from rl_core.plugins import MOUNT_POINTS


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.command)
def test_what_a_layout_names_is_in_its_tree(layout):
    schema = core_schema(layout)
    assert set(layout.mount_paths) <= set(MOUNT_POINTS)
    assert set(layout.mount_paths.values()) <= set(schema.sections)
    assert set(layout.strategies) == {key.path for key in schema.plugin_keys() if key.metadata["kind"] == "backend"}
    assert layout.leader in layout.strategies
    assert set(layout.strategies.values()) <= set(layout.mount_paths)


def test_layouts_are_found_by_their_command():
    assert layout_of_command("train") is PPO
    assert layout_of_command("sft") is SFT
    with pytest.raises(ConfigError, match=r"--command is 'stf', but .* are: train, sft"):
        layout_of_command("stf")


def test_a_copy_is_the_layout_itself():
    assert pickle.loads(pickle.dumps(SFT)) is SFT
    assert copy.deepcopy(PPO) is PPO
