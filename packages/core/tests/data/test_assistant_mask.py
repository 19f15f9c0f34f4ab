from types import SimpleNamespace
from typing import ClassVar

import pytest
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment
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

    encoder = ConversationEncoder(Lines(), {})
    assert learned(Lines(), encoder.encode(5, TWO_TURNS, None)) == "user:q\nassistant:[x\n]tool:y\nassistant:[z\n]"
    assert encoder.notes() == [
        "1 conversations have an assistant turn that the chat template closes with no token, so the model does not learn "
        "where to stop."
    ]


@pytest.mark.parametrize("flagged", [False, None], ids=["added, not special", "plain text"])
def test_glue_is_not_learned_behind_a_closing_that_is_not_special(toy, flagged):
    # B40, for tokenizers that do not flag what closes a turn.
    class Unflagged(toy):
        all_special_ids = (1,)
        added_tokens_decoder: ClassVar = {} if flagged is None else {2: SimpleNamespace(content="<e>", special=flagged)}

        def encode(self, text, add_special_tokens=True):
            ids = super().encode(text, add_special_tokens)
            return [n for token in ids for n in ((60, 101, 62) if flagged is None and token == 2 else (token,))]

    encoder = ConversationEncoder(Unflagged(), {})
    ids, mask = encoder.encode(5, TWO_TURNS, None)
    if flagged is None:
        #             <u> q    <   e    >   \n  <a> x    <   e    >   \n  <t> y    <   e    >   \n  <a> z    <   e    >   \n
        assert ids == [
            3,
            113,
            60,
            101,
            62,
            10,
            4,
            120,
            60,
            101,
            62,
            10,
            5,
            121,
            60,
            101,
            62,
            10,
            4,
            122,
            60,
            101,
            62,
            10,
        ]
        assert [n for n, mark in enumerate(mask) if mark] == [7, 8, 9, 10, 19, 20, 21, 22]
    else:
        assert ids == [3, 113, 2, 10, 4, 120, 2, 10, 5, 121, 2, 10, 4, 122, 2, 10]
        assert [n for n, mark in enumerate(mask) if mark] == [5, 6, 13, 14]
    assert encoder.notes() == []


def test_a_template_that_ignores_add_generation_prompt_is_told(toy, learned):
    class Deaf(toy):
        def text(self, messages, tools, opens):
            return super().text(messages, tools, opens=False)

    encoder = ConversationEncoder(Deaf(), {})
    assert learned(Deaf(), encoder.encode(5, TWO_TURNS[:2], None)) == "<u>q<e>\n[<a>x<e>]\n"
    assert encoder.notes() == [
        "the chat template ignores add_generation_prompt, so what opens a turn of the assistant ('<a>') is learned with it."
    ]


def test_turns_without_a_header_need_no_generation_prompt(toy, learned):
    # As [INST] q [/INST] x </s>: the user's turn tells that the assistant is next.
    class Instructs(toy):
        def text(self, messages, tools, opens):
            return "".join(f"<u>{m['content']}<t>" if m["role"] == "user" else f" {m['content']}<e>" for m in messages)

    encoder = ConversationEncoder(Instructs(), {})
    shown = learned(Instructs(), encoder.encode(5, messages(("user", "q"), ("assistant", "x"), ("user", "r")), None))
    assert shown == "<u>q<t>[ x<e>]<u>r<t>"
    assert encoder.notes() == []


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

    with pytest.raises(
        DataError, match=r"row 5: the tokens of its turns do not add up .* in model\.custom_chat_template"
    ):
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


def marking(toy, turn, **kwargs):
    """A tokenizer whose template writes ``turn`` for the assistant and ``<u>words<e>`` for anyone else."""

    class Marking(toy):
        chat_template = (
            "{%- for m in messages %}{%- if m.role == 'assistant' %}" + turn + "{%- else %}<u>{{ m.content + '<e>\n' }}"
            "{%- endif %}{%- endfor %}"
        )

        def text(self, messages, tools, opens):
            env = ImmutableSandboxedEnvironment(extensions=[Ignored], trim_blocks=True, lstrip_blocks=True)
            return env.from_string(self.chat_template).render(messages=messages, eos_token="<e>")

    return Marking(**kwargs)


class Ignored(Extension):
    """Shows what a mark holds."""

    tags: ClassVar = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


@pytest.mark.parametrize(
    "turn",
    [
        "<a>{% generation %}{{ m.content }}<e>{% endgeneration %}{{ '\n' }}",
        "<a>{% generation %}{{ m.content + '<e>\n' }}{% endgeneration %}",
        "<a>{% generation %}{{ m.content }}{% endgeneration %}{{ '<e>\n' }}",
    ],
    ids=["as generated", "with the glue", "only the words"],
)
@pytest.mark.parametrize("eos", [2, 6])
def test_the_templates_own_mark_is_believed_up_to_the_closing_token(toy, turn, eos):
    # The closing token need not be the tokenizer's end of text: base models with ChatML have another.
    tokenizer = marking(toy, turn)
    tokenizer.eos_token_id = eos
    encoder = ConversationEncoder(tokenizer, {})
    ids, mask = encoder.encode(5, messages(("user", "q"), ("assistant", "x"), ("user", "y"), ("assistant", "z")), None)
    #             <u> q    <e> \n  <a> x    <e> \n  <u> y    <e> \n  <a> z    <e> \n
    assert ids == [3, 113, 2, 10, 4, 120, 2, 10, 3, 121, 2, 10, 4, 122, 2, 10]
    assert [n for n, mark in enumerate(mask) if mark] == [5, 6, 13, 14]
    assert encoder.notes() == []


def test_a_marked_turn_may_close_with_a_token_of_its_own(toy, learned):
    # Calls of tools end with <s> here, as with <|eom_id|> elsewhere.
    turn = "<a>{% generation %}{{ m.content or m.call }}{% endgeneration %}{{ '<s>' if m.call else '<e>' }}"
    conversation = [TWO_TURNS[0], {"role": "assistant", "content": "", "call": "f"}, *TWO_TURNS[2:]]
    assert learned(toy(), encode(marking(toy, turn), conversation)) == "<u>q<e>\n<a>[f<s>]<u>y<e>\n<a>[z<e>]"


def test_what_opens_the_next_turn_does_not_close_a_marked_one(toy, learned):
    turn = "<a>{% generation %}{{ m.content }}{% endgeneration %}{{ '' if m.call else '<e>' }}"
    conversation = [TWO_TURNS[0], {"role": "assistant", "content": "f", "call": True}, *TWO_TURNS[2:]]
    encoder = ConversationEncoder(marking(toy, turn), {})
    assert learned(toy(), encoder.encode(5, conversation, None)) == "<u>q<e>\n<a>[f]<u>y<e>\n<a>[z<e>]"
    assert encoder.num_unclosed == 1


def test_marked_turns_without_a_closing_token_are_told(toy, learned):
    encoder = ConversationEncoder(marking(toy, "<a>{% generation %}{{ m.content }}{% endgeneration %}"), {})
    assert learned(toy(), encoder.encode(5, TWO_TURNS, None)) == "<u>q<e>\n<a>[x]<u>y<e>\n<a>[z]"
    assert "1 conversations have an assistant turn that the chat template closes with no token" in encoder.notes()[0]


def test_marks_that_touch_are_one(toy, learned):
    # <t> stands for </think>: white space behind it is said, not glue.
    turn = (
        "<a>{% generation %}{{ (m.thought or '') + '<t>\n' }}{% endgeneration %}"
        "{% generation %}{{ m.content }}{% endgeneration %}{{ '<e>\n' }}"
    )
    conversation = [TWO_TURNS[0], {"role": "assistant", "thought": "h", "content": "x"}]
    assert learned(toy(), encode(marking(toy, turn), conversation)) == "<u>q<e>\n<a>[h<t>\nx<e>]\n"


def test_the_end_of_an_empty_marked_turn_is_learned(toy, learned):
    turn = "<a>{% generation %}{{ m.content }}{% endgeneration %}{{ '<e>\n' }}"
    conversation = messages(("user", "q"), ("assistant", ""))
    assert learned(toy(), encode(marking(toy, turn), conversation)) == "<u>q<e>\n<a>[<e>]\n"


def test_a_mark_within_a_token_cuts_it(toy):
    # The opening ends in a newline, which melts with the one that the words begin with.
    tokenizer = marking(toy, "<a>{{ '\n' }}{% generation %}{{ m.content }}<e>{% endgeneration %}", melts=True)
    ids, mask = encode(tokenizer, messages(("user", "q"), ("assistant", "\n\nx")))
    #             <u> q    <e> \n  <a> \n  \n\n x    <e>
    assert ids == [3, 113, 2, 10, 4, 10, 7, 120, 2]
    assert mask == [False] * 6 + [True] * 3


def test_template_arguments_are_passed_on(toy):
    seen = []

    class Listens(toy):
        def apply_chat_template(self, messages, **kwargs):
            seen.append(kwargs.pop("thinking"))
            return super().apply_chat_template(messages, **kwargs)

    encode(Listens(), TWO_TURNS, thinking=False)
    assert seen == [False] * len(seen) != []
