from __future__ import annotations

import json

import pytest
from rl_engine.serving.text import end_of_sequence_ids
from transformers import AutoConfig


@pytest.mark.parametrize(
    ("generation", "eos_token_id", "expected"),
    [
        ({"eos_token_id": [7, 8, 7]}, 5, (7, 8)),
        ({"eos_token_id": 7}, 5, (7,)),
        ({"temperature": 0.5}, 5, (5,)),
        (None, [5, 6], (5, 6)),
        (None, None, ()),
    ],
)
def test_ends_of_sequence_come_from_the_generation_settings_first(tmp_path, generation, eos_token_id, expected):
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    config = AutoConfig.for_model("qwen2", eos_token_id=eos_token_id)
    assert end_of_sequence_ids(tmp_path, config) == expected
