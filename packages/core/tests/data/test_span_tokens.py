import pytest
from rl_core.data.span_tokens import encode_spans
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast


def fast(vocabulary, merges=(), **parts):
    backend = Tokenizer(models.BPE(vocab={text: n for n, text in enumerate(vocabulary)}, merges=list(merges)))
    for name, part in parts.items():
        setattr(backend, name, part)
    return PreTrainedTokenizerFast(tokenizer_object=backend, clean_up_tokenization_spaces=False)


@pytest.fixture
def spaced():
    """Puts a blank in front of every text, as many SentencePiece models do: ids ▁ 0, a 1, b 2, : 3."""
    return fast(
        "▁ab:",
        normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
        decoder=decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]),
    )


@pytest.fixture
def trimmed():
    """Bytes, with a blank and an a melted, whose offsets leave out the blank: ids Ġ 0, a 1, : 2, Ġa 3."""
    return fast(
        ["Ġ", "a", ":", "Ġa"],
        [("Ġ", "a")],
        pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoder=decoders.ByteLevel(),
    )


def test_edges_between_tokens_leave_the_ids_of_the_whole(toy):
    assert encode_spans(toy(), "<a>x<e>\n", [(3, 7)]) == ([4, 120, 2, 10], [False, True, True, False])
    assert encode_spans(toy(), "<a>x", []) == ([4, 120], [False, False])


def test_spans_may_touch_and_be_everything(toy):
    assert encode_spans(toy(), "ab", [(0, 1), (1, 2)]) == ([97, 98], [True, True])


def test_a_token_across_an_edge_is_cut(toy, trimmed):
    # 7 is two newlines as one token.
    assert encode_spans(toy(melts=True), "a\n\nb", []) == ([97, 7, 98], [False] * 3)
    assert encode_spans(toy(melts=True), "a\n\nb", [(2, 4)]) == ([97, 10, 10, 98], [False, False, True, True])
    assert encode_spans(trimmed, ": a", []) == ([2, 3], [False] * 2)
    assert encode_spans(trimmed, ": a", [(2, 3)]) == ([2, 0, 1], [False, False, True])
    assert encode_spans(trimmed, ": a", [(1, 3)]) == ([2, 3], [False, True])


def test_parts_that_get_a_blank_in_front_are_taken_from_the_whole(spaced):
    #                                                      ▁  a  :  b  :  a
    assert encode_spans(spaced, "a:b:a", [(2, 4)]) == ([0, 1, 3, 2, 3, 1], [False] * 3 + [True] * 2 + [False])


def test_without_offsets_beginnings_tell_where_the_edges_are(toy):
    class Spaced(toy):
        def encode(self, text, add_special_tokens=True):
            return super().encode(" " + text, add_special_tokens)

    assert encode_spans(Spaced(), "axb", [(1, 2)]) == ([32, 97, 120, 98], [False, False, True, False])
    assert encode_spans(Spaced(melts=True), "\n\nx", [(1, 3)]) is None


def test_a_melted_token_that_cannot_be_cut_is_told():
    melted = fast(
        ["▁", "a", ":", ":a"],
        [(":", "a")],
        normalizer=normalizers.Prepend("▁"),
        decoder=decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]),
    )
    assert encode_spans(melted, ":a", [(1, 2)]) is None
