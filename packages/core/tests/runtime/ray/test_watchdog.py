import pytest
from rl_core.runtime.ray.activity import Beat
from rl_core.runtime.ray.heartbeat import Sign
from rl_core.runtime.ray.watchdog import redactor, secrets_of, silent_text


def test_silence_says_who_and_what_it_did_last():
    beat = Beat("update", "step 3, phase update", 4.0, '  File "/x/model.py", line 7, in forward', "")
    text = silent_text("update (step 3) on rank 1 of 2", Sign(beat, 121.4))
    assert text.startswith(
        "update (step 3) on rank 1 of 2: no heartbeat has come for 121 s (trainer.watchdog.silence_s)"
    )
    assert text.endswith(
        'It was last seen in update (step 3, phase update); its stack was:\n  File "/x/model.py", line 7, in forward'
    )
    assert silent_text("between two calls on rank 1", Sign(Beat(None, "", 0.0, "", ""), 9.0)).endswith(
        "It was last seen between two calls."
    )


def test_secrets_are_the_long_values_and_the_lines_of_long_values():
    found = secrets_of(
        {"A": "token-1", "B": "token-1-more", "C": "first\nsecond", "D": "1", "E": "INFO", "F": "  \n  "}
    )
    assert found == ["first\nsecond", "token-1-more", "token-1", "second", "first"]


@pytest.mark.parametrize("text", ["password=hunter22", "['hunter22']", "a\nhunter22hunter22"])
def test_a_redactor_takes_secrets_out_of_any_text(text):
    shown = redactor({"PASS": "hunter22", "LEVEL": "debug", "NUMBER": 12345}, "***")(f"{text} debug 12345")
    assert "hunter22" not in shown
    assert shown.endswith(" debug ***")
