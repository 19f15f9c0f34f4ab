import pytest
from rl_core.data.assistant_mask import ConversationEncoder
from rl_core.errors import DataError


def messages(*turns):
    return [{"role": role, "content": content} for role, content in turns]


TWO_TURNS = messages(("user", "q"), ("assistant", "x"), ("tool", "y"), ("assistant", "z"))


def encode(tokenizer, conversation, tools=None, **kwargs):
    return ConversationEncoder(tokenizer, kwargs).encode(5, conversation, tools)


def test_what_closes_a_turn_is_learned_and_the_glue_behind_it_is_not(toy):
    ids, mask = encode(toy(), TWO_TURNS)
    #             <u> q    <e> \n  <a> x    <e> \n  <t> y    <e> \n  <a> z    <e> \n
    assert ids == [3, 113, 2, 10, 4, 120, 2, 10, 5, 121, 2, 10, 4, 122, 2, 10]
    assert [n for n, mark in enumerate(mask) if mark] == [5, 6, 13, 14]


def test_the_ids_are_those_of_the_template(toy):
    tokenizer = toy(bos=True)
    ids, _ = encode(tokenizer, TWO_TURNS)
    assert ids == tokenizer.apply_chat_template(TWO_TURNS, tools=None, tokenize=True)
    assert ids.count(1) == 1


def test_tools_are_shown_and_not_learned(toy, learned):
    shown = learned(toy(), encode(toy(), TWO_TURNS[:2], tools=[{"name": "calc"}]))
    assert shown == "<s>calc<e>\n<u>q<e>\n<a>[x<e>]\n"


def test_blank_content_is_learned(toy, learned):
    # Only what follows the closing token is glue; blanks before it are the assistant's.
    conversation = messages(("user", "q"), ("assistant", "x \n"))
    assert learned(toy(), encode(toy(), conversation)) == "<u>q<e>\n<a>[x \n<e>]\n"


def test_a_conversation_may_begin_and_end_with_anyone(toy, learned):
    conversation = messages(("assistant", "a"), ("user", "b"), ("assistant", "c"), ("assistant", "d"), ("user", "e"))
    shown = learned(toy(), encode(toy(), conversation))
    assert shown == "<a>[a<e>]\n<u>b<e>\n<a>[c<e>]\n<a>[d<e>]\n<u>e<e>\n"
    assert not any(encode(toy(), messages(("user", "b")))[1])


def test_a_template_without_a_closing_token_is_learned_to_the_end_of_the_turn(toy, learned):
    class Lines(toy):
        def text(self, messages, tools, opens):
            return "".join(f"{m['role']}:{m['content']}\n" for m in messages) + "assistant:" * opens

    shown = learned(Lines(), encode(Lines(), TWO_TURNS))
    assert shown == "user:q\nassistant:[x\n]tool:y\nassistant:[z\n]"


def test_turns_that_melt_into_their_opening_get_ids_of_their_own(toy, learned):
    # The opening ends in a newline, which melts with the one that the content begins with.
    tokenizer = toy(melts=True, turn="<a>\n")
    encoded = encode(tokenizer, messages(("user", "q"), ("assistant", "\nx")))
    #                     <u> q    <e> \n  <a> \n  \n  x    <e> \n
    assert encoded[0] == [3, 113, 2, 10, 4, 10, 10, 120, 2, 10]
    assert learned(tokenizer, encoded) == "<u>q<e>\n<a>\n[\nx<e>]\n"


def test_parts_that_do_not_add_up_are_refused_by_row(toy):
    class Spaced(toy):
        """Puts a blank in front of every text that it encodes, like old SentencePiece tokenizers."""

        def encode(self, text, add_special_tokens=True):
            return super().encode(" " + text, add_special_tokens)

    with pytest.raises(DataError, match=r"row 5: the tokens of its turns do not add up .* \{% generation %\}"):
        encode(Spaced(melts=True, turn="<a>\n"), messages(("user", "q"), ("assistant", "\nx")))


def test_a_template_that_rewrites_earlier_turns_is_refused_by_row_and_message(toy):
    class Forgets(toy):
        def text(self, messages, tools, opens):
            shown = [
                {**m, "content": "..."} if m["role"] == "assistant" and m is not messages[-1] else m for m in messages
            ]
            return super().text(shown, tools, opens)

    message = r"row 5: the chat template renders message 1 differently .* 'x<e>.* against '\.\.\.<e>"
    with pytest.raises(DataError, match=message):
        encode(Forgets(), messages(("user", "q"), ("assistant", "x"), ("user", "r"), ("assistant", "y")))


def test_a_template_that_raises_is_refused_by_row(toy):
    class Strict(toy):
        def text(self, messages, tools, opens):
            if messages and messages[0]["role"] != "user":
                msg = "roles must alternate"
                raise ValueError(msg)
            return super().text(messages, tools, opens)

    with pytest.raises(DataError, match=r"row 5: the chat template cannot render .* ValueError: roles must alternate"):
        encode(Strict(), messages(("assistant", "x")))


def test_without_a_template_conversations_are_refused(toy):
    class Base(toy):
        chat_template = None

    with pytest.raises(DataError, match=r"row 5 is a conversation, but the tokenizer has no chat template.*prompt"):
        encode(Base(), TWO_TURNS)


@pytest.mark.parametrize("marked", [{5, 6, 13, 14}, {5, 6, 7, 13, 14, 15}, {5, 13}])
def test_the_templates_own_mark_is_believed_up_to_the_closing_token(toy, learned, marked):
    class Marking(toy):
        """Says itself what the assistant's words are: ``marked`` picks the tokens."""

        chat_template = "...{%- generation %}...{% endgeneration -%}"

        def __init__(self, marked):
            super().__init__()
            self.marked = marked

        def apply_chat_template(self, messages, *, tools, tokenize, return_dict, return_assistant_tokens_mask, **_):
            assert tokenize and return_dict and return_assistant_tokens_mask
            ids = self.encode(self.text(messages, tools, opens=False))
            return {"input_ids": ids, "assistant_masks": [int(n in self.marked) for n in range(len(ids))]}

    # With the glue, and without the token that closes a turn: both come out as what the generator emits.
    shown = learned(toy(), encode(Marking(marked), TWO_TURNS))
    assert shown == "<u>q<e>\n<a>[x<e>]\n<t>y<e>\n<a>[z<e>]\n"


def test_template_arguments_are_passed_on(toy):
    seen = []

    class Listens(toy):
        def apply_chat_template(self, messages, **kwargs):
            seen.append(kwargs.pop("thinking"))
            return super().apply_chat_template(messages, **kwargs)

    encode(Listens(), TWO_TURNS, thinking=False)
    assert seen == [False] * len(seen) != []
