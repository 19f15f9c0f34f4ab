import pickle

import pytest
from rl_core.errors import ConfigError
from rl_core.plugins.from_file import load_from_file


def test_functions_and_classes_come_from_the_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("class Thing:\n    number = 3\n\ndef f():\n    return 4\n")
    thing = load_from_file(path, "Thing", "some.section")
    assert thing.number == 3
    assert thing.__module__ == "rl_some_section"
    assert pickle.loads(pickle.dumps(thing)) is thing
    assert load_from_file(path, "f", "some.section")() == 4


@pytest.mark.parametrize(
    ("text", "name", "match"),
    [
        (None, "f", r"section\.path is .*mine\.py: no such file"),
        ("raise ValueError('no')\n", "f", r"section\.path .* could not be loaded: ValueError: no"),
        ("def g(): ...\nf = 3\n", "f", r"section\.name is 'f', but .* has no such function or class; it has g"),
    ],
)
def test_what_cannot_be_loaded_names_the_key(text, name, match, tmp_path):
    if text is not None:
        (tmp_path / "mine.py").write_text(text)
    with pytest.raises(ConfigError, match=match):
        load_from_file(tmp_path / "mine.py", name, "section")


def test_what_is_no_python_file_is_refused(tmp_path):
    (tmp_path / "mine.txt").write_text("")
    with pytest.raises(ConfigError, match="not a Python file"):
        load_from_file(tmp_path / "mine.txt", "f", "section")
