import pytest
from rl_core.config.data import DataConfig
from rl_core.data.media import MediaHandle, row_media, with_placeholders
from rl_core.errors import DataError


def test_all_forms_become_handles(tmp_path):
    (tmp_path / "a.png").write_bytes(b"abc")
    path = str(tmp_path / "a.png")
    row = {"images": [path, b"raw", {"bytes": b"x", "path": None}, {"image": path}, None], "audios": {"path": path}}
    found = row_media(0, row, DataConfig())
    assert [handle.read() for handle in found["image"]] == [b"abc", b"raw", b"x", b"abc"]
    assert found["audio"] == [MediaHandle("audio", path=path)]
    assert "video" not in found
    assert "raw" not in repr(found["image"][1])


def test_what_is_no_medium_and_what_is_gone():
    with pytest.raises(DataError, match=r"row 2: images must hold paths, bytes .*; found 7"):
        row_media(2, {"images": [7]}, DataConfig())
    with pytest.raises(DataError, match=r"image gone\.png cannot be read"):
        MediaHandle("image", path="gone.png").read()


def test_places_become_parts_in_order():
    messages = [{"role": "user", "content": "<image>a<video>"}, {"role": "assistant", "content": "b"}]
    found = with_placeholders(0, messages, {"image": [1], "video": [2]})
    assert found[0]["content"] == [{"type": "image"}, {"type": "text", "text": "a"}, {"type": "video"}]
    assert found[1] == messages[1]
    assert messages[0]["content"] == "<image>a<video>", "the row stays as it is"
    with pytest.raises(DataError, match=r"row 0: the messages have 1 places for videos \(<video>\), the row has 0"):
        with_placeholders(0, messages, {"image": [1]})
