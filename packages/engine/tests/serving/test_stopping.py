from __future__ import annotations

import pytest
from rl_core.contracts.rollout import SamplingParams
from rl_engine.serving.stopping import StopStrings, ending_ids
from rl_testing.models import TURN_END_ID, tiny_tokenizer


@pytest.fixture(scope="module")
def decode():
    tokenizer = tiny_tokenizer()
    return lambda ids: tokenizer.decode(list(ids), skip_special_tokens=False)


@pytest.fixture(scope="module")
def encode():
    tokenizer = tiny_tokenizer()
    return lambda text: tokenizer.encode(text, add_special_tokens=False)


def first_hit(strings, decode, tokens, start=1):
    """Tokens until a stop string is found, asking after each one from `start` on."""
    stop = StopStrings(strings, decode)
    return next((count for count in range(start, len(tokens) + 1) if stop.is_in(tokens[:count])), None)


@pytest.mark.parametrize(
    ("text", "strings", "until"),
    [
        ("abc STOP and more", ("STOP",), "abc STOP"),
        ("abc", ("STOP",), None),
        ("a\n\nb", ("\n\n", "b"), "a\n\n"),
        ("aab", ("ab",), "aab"),
        ("x", ("x",), "x"),
        ("Grüße 🙂 Ende", ("🙂",), "Grüße 🙂"),
        ("Grüße", ("ü",), "Grü"),
        ("日本語", ("本",), "日本"),
    ],
)
def test_a_response_ends_with_the_last_byte_of_a_stop_string(text, strings, until, decode, encode):
    expected = None if until is None else len(encode(until))
    assert first_hit(strings, decode, encode(text)) == expected


def test_a_string_is_found_before_half_a_character(decode, encode):
    tokens = encode("no STOP")
    half = encode("ü")[:1]
    assert first_hit(("STOP",), decode, tokens[:-1] + tokens[-1:] + half) == len(tokens)
    # The same when the token that completes the string is asked about together with the half character.
    assert StopStrings(("STOP",), decode).is_in(tokens + half)


def test_bytes_that_never_become_a_character_hide_nothing(decode, encode):
    broken = encode("ü")[:1] * 5
    assert first_hit(("END",), decode, broken + encode(" END.")) == len(broken) + 4


def test_special_tokens_are_text(decode, encode):
    tokens = [*encode("ab"), TURN_END_ID, *encode("c")]
    assert first_hit(("<|im_end|>",), decode, tokens) == 3


def test_the_whole_text_is_looked_at_when_it_is_asked_late(decode, encode):
    # As after min_tokens: the string stands in the text already.
    assert first_hit(("STOP",), decode, encode("STOP here"), start=7) == 7


def test_decoding_looks_at_few_tokens(decode, encode):
    longest = 0

    def counting(ids):
        nonlocal longest
        longest = max(longest, len(ids))
        return decode(ids)

    assert first_hit(("never",), counting, encode("a long text " * 30)) is None
    assert longest <= 3


def test_ending_ids_are_those_of_model_and_request():
    assert ending_ids(SamplingParams(stop_token_ids=(7,)), (1, 2)) == (1, 2, 7)
    assert ending_ids(SamplingParams(stop_token_ids=(7,), ignore_eos=True), (1, 2)) == ()
