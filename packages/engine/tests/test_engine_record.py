from dataclasses import replace

import pytest
from rl_core.errors import CheckpointError
from rl_engine.engine_record import EngineRecord

RECORD = EngineRecord(
    backend="fsdp",
    role="policy",
    shapes={"a": [2, 3], "b": [1]},
    world_size=2,
    schedule_step=5,
    skipped_steps=1,
    has_optimizer=True,
)


def test_there_and_back(tmp_path):
    RECORD.write(tmp_path)
    assert EngineRecord.read(tmp_path) == RECORD
    EngineRecord.read(tmp_path).check(replace(RECORD, world_size=4, schedule_step=0), tmp_path)


@pytest.mark.parametrize("text", [None, "{", "[]", '{"format": 1}'])
def test_what_is_no_record(tmp_path, text):
    if text is not None:
        (tmp_path / "engine.json").write_text(text)
    with pytest.raises(CheckpointError, match="no complete checkpoint of a training engine"):
        EngineRecord.read(tmp_path)


def test_another_format(tmp_path):
    replace(RECORD, format=2).write(tmp_path)
    with pytest.raises(CheckpointError, match="has format 2, this version reads 1"):
        EngineRecord.read(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"role": "value"}, "holds a policy model .* this is a value model"),
        ({"backend": "other"}, "backend 'fsdp', this is a policy model of backend 'other'"),
        ({"shapes": {"a": [2, 3]}}, "1 tensors differ in name or shape: b"),
        ({"shapes": {"a": [3, 2], "b": [1]}}, "1 tensors differ in name or shape: a"),
        ({"shapes": {"a": [2, 3], "b": [1], "c": []}}, "1 tensors differ in name or shape: c"),
    ],
)
def test_another_model(tmp_path, change, message):
    with pytest.raises(CheckpointError, match=message):
        RECORD.check(replace(RECORD, **change), tmp_path)


def test_training_needs_optimizer_state(tmp_path):
    without = replace(RECORD, has_optimizer=False)
    with pytest.raises(CheckpointError, match="no optimizer state"):
        without.check(RECORD, tmp_path)
    RECORD.check(without, tmp_path)
