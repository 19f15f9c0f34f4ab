import pytest
from rl_core.data.conversation import Growing, extend, glue_ids
from rl_core.errors import DataError

QUESTION = {"role": "user", "content": "q"}


def said(content, **more):
    return {"role": "assistant", "content": content} | more


def tool(content):
    return {"role": "tool", "content": content}


def text(tokenizer, ids):
    return tokenizer.decode(ids)


def test_b40_the_newline_behind_a_turn_is_there_and_is_not_learned(toy, learned):
    tokenizer = toy()
    prompt = tokenizer.apply_chat_template([QUESTION], tools=None, tokenize=True, add_generation_prompt=True)
    first, second = tokenizer.encode("x<e>"), tokenizer.encode("z<e>")
    grown = extend(Growing([], []), first, said=True)
    grown = extend(grown, glue_ids(tokenizer, [QUESTION, said("x")], [tool("y")], first), said=False)
    grown = extend(grown, second, said=True)

    assert text(tokenizer, prompt + grown.ids) == "<u>q<e>\n<a>x<e>\n<t>y<e>\n<a>z<e>"
    assert learned(tokenizer, (prompt + grown.ids, [False] * len(prompt) + grown.mask)) == (
        "<u>q<e>\n<a>[x<e>]\n<t>y<e>\n<a>[z<e>]"
    )
    whole = [QUESTION, said("x"), tool("y"), said("z")]
    rendered = tokenizer.apply_chat_template(whole, tools=None, tokenize=True)
    assert prompt + grown.ids == rendered[:-1]  # but for the newline behind the last turn, which nobody said


def test_a_turn_that_was_cut_is_closed_by_the_glue(toy):
    tokenizer = toy()
    glue = glue_ids(tokenizer, [QUESTION, said("xx")], [tool("y")], tokenizer.encode("xx"))
    assert text(tokenizer, glue) == "<e>\n<t>y<e>\n<a>"


def test_what_was_said_is_not_encoded_again(toy):
    # The engine may have said two newlines as two tokens where the tokenizer has one for both.
    tokenizer = toy(melts=True)
    sampled = [ord("x"), 10, 10, 2]
    grown = extend(Growing([], []), sampled, said=True)
    grown = extend(grown, glue_ids(tokenizer, [QUESTION, said("x\n\n")], [tool("y")], sampled), said=False)
    assert grown.ids[:4] == sampled
    assert text(tokenizer, grown.ids) == "x\n\n<e>\n<t>y<e>\n<a>"


@pytest.mark.parametrize("calls", [1, 3])
def test_several_answers_and_the_begin_of_a_text(toy, calls):
    tokenizer = toy(bos=True)
    sampled = tokenizer.encode("x<e>", add_special_tokens=False)
    glue = glue_ids(tokenizer, [QUESTION, said("x")], [tool(str(n)) for n in range(calls)], sampled)
    assert text(tokenizer, glue) == "\n" + "".join(f"<t>{n}<e>\n" for n in range(calls)) + "<a>"
    assert 1 not in glue


def test_many_turns_add_up_to_the_whole_conversation(toy):
    tokenizer = toy()
    messages = [QUESTION]
    ids = tokenizer.apply_chat_template(messages, tools=None, tokenize=True, add_generation_prompt=True)
    for turn in range(5):
        sampled = tokenizer.encode(f"say{turn}<e>")
        messages.append(said(f"say{turn}"))
        answer = tool(f"t{turn}") if turn % 2 else {"role": "user", "content": f"u{turn}"}
        ids = [*ids, *sampled, *glue_ids(tokenizer, messages, [answer], sampled)]
        messages.append(answer)
        assert ids == tokenizer.apply_chat_template(messages, tools=None, tokenize=True, add_generation_prompt=True)


def test_calls_of_tools_stand_between_the_words_and_the_closing(toy):
    class Calling(toy):
        def text(self, messages, tools, opens):
            shown = [m | {"content": m["content"] + "!" * len(m.get("tool_calls", ()))} for m in messages]
            return super().text(shown, tools, opens)

    tokenizer = Calling()
    messages = [QUESTION, said("x", tool_calls=["a", "b"])]
    glue = glue_ids(tokenizer, messages, [tool("y")], tokenizer.encode("x!!<e>"))
    assert text(tokenizer, glue) == "\n<t>y<e>\n<a>"


def test_a_template_that_rewrites_turns_is_refused(toy):
    class Rewriting(toy):
        def text(self, messages, tools, opens):
            shown = super().text(messages, tools, opens)
            return shown if messages[-1]["role"] == "assistant" else shown.replace("<e>\n", "<e>")

    tokenizer = Rewriting()
    with pytest.raises(DataError, match="differently once another message follows"):
        glue_ids(tokenizer, [QUESTION, said("x")], [tool("y")], tokenizer.encode("x<e>"))
    with pytest.raises(DataError, match="must end with what the assistant said"):
        glue_ids(toy(), [QUESTION], [tool("y")], [])
