import io

import pytest
from rl_core.scoring.frames import HEADER, MAX_ANSWER_BYTES, FrameBuffer, Kind, Unreadable, frame, read_frame


def test_frames_are_whole_however_they_come():
    sent = frame(Kind.READY) + frame(Kind.ANSWER, b"abc") + frame(Kind.ANSWER, b"")
    buffer = FrameBuffer()
    got = [item for byte in sent for item in buffer.feed(bytes([byte]))]
    assert got == [(Kind.READY, b""), (Kind.ANSWER, b"abc"), (Kind.ANSWER, b"")]
    assert list(FrameBuffer().feed(sent)) == got


def test_a_stream_that_ends_within_a_frame_has_ended():
    stream = io.BytesIO(frame(Kind.CALL, b"abc") + frame(Kind.CALL, b"abc")[:-1])
    assert read_frame(stream) == (Kind.CALL, b"abc")
    assert read_frame(stream) is None


@pytest.mark.parametrize("header", [HEADER.pack(3, 99), HEADER.pack(MAX_ANSWER_BYTES + 100, Kind.ANSWER)])
def test_what_is_no_answer_is_not_waited_for(header):
    with pytest.raises(Unreadable):
        list(FrameBuffer().feed(header))
