import json
from pathlib import Path

import pytest
from rl_core.errors import ConfigError
from rl_core.trainer.offline.export import MARKER, export_model, require_replaceable


def write(text):
    def fill(folder):
        Path(folder).mkdir(parents=True)
        (Path(folder) / text).write_text(text)

    return fill


def test_an_export_replaces_the_one_before_whole(tmp_path):
    folder = tmp_path / "deep" / "model"
    export_model(folder, write("one"), {"step": 1})
    export_model(folder, write("two"), {"step": 2})
    assert sorted(path.name for path in folder.iterdir()) == sorted([MARKER, "two"])
    assert json.loads((folder / MARKER).read_text()) == {"step": 2}
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_an_export_that_fails_leaves_the_one_before(tmp_path):
    def fail(folder):
        write("two")(folder)
        raise OSError

    export_model(tmp_path / "model", write("one"), {})
    with pytest.raises(OSError):
        export_model(tmp_path / "model", fail, {})
    assert (tmp_path / "model" / "one").is_file()
    export_model(tmp_path / "model", write("three"), {})
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_is_no_export_is_not_replaced(tmp_path):
    (tmp_path / "empty").mkdir()
    require_replaceable(tmp_path / "empty")
    require_replaceable(tmp_path / "absent")
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "model.safetensors").write_text("precious")
    for path in (tmp_path / "base", tmp_path / "base" / "model.safetensors"):
        with pytest.raises(ConfigError, match="holds something else than an earlier export"):
            export_model(path, write("x"), {})
    assert (tmp_path / "base" / "model.safetensors").read_text() == "precious"
