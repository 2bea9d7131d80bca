"""Imported history becomes what strict servers accept; every change is recorded."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from families import of_family, traits_of
from thoroughness import examples
from turnwise.rules.history import BEGINNING_MISSING, NO_RESULT, heal, unique_id
from turnwise.rules.schema import decode_strictly
from turnwise.vocab import (
    ArgumentsState,
    File,
    Message,
    Opaque,
    Part,
    ProviderItem,
    Reasoning,
    Refusal,
    Repair,
    Text,
    ToolCall,
    ToolResult,
)

HELLO = Message("user", (Text("hello"),))
BYE = Message("assistant", (Text("bye"),))


def call(id: str, name: str = "read") -> ToolCall:
    return ToolCall(id=id, name=name)


def result(id: str, text: str = "ok", name: str = "read") -> ToolResult:
    return ToolResult(call_id=id, name=name, content=(Text(text),))


def calls(*parts: Part) -> Message:
    return Message("assistant", parts)


def results(*parts: Part) -> Message:
    return Message("tool", parts)


SOUND = (
    Message("system", (Text("be kind"),)),
    HELLO,
    calls(Text("looking"), call("a"), call("b")),
    results(result("a"), result("b")),
    calls(call("c")),
    results(result("c")),
    BYE,
    HELLO,
)


@pytest.mark.promise("step:history-healed", "step:prefix-stable")
@pytest.mark.parametrize("family", ["openai_chat", "openai_responses", "anthropic_messages", "gemini"])
def test_sound_history_stays_as_it_is(family: str) -> None:
    """The very same messages: nothing is normalised for its own sake."""
    healed = heal(SOUND, **of_family(family))
    assert all(new is old for new, old in zip(healed.messages, SOUND, strict=True))
    assert (healed.repairs, healed.call_ids) == ((), frozenset("abc"))


@pytest.mark.promise("step:history-healed")
def test_results_in_messages_of_their_own_are_one_message_in_call_order() -> None:
    """Chat Completions has a message for each; that is a form, not a fault. The order is mended and recorded."""
    given_ = (HELLO, calls(call("a"), call("b")), results(result("b")), results(result("a")))
    assert heal(given_, **of_family("gemini")).messages == (*given_[:2], results(result("a"), result("b")))
    assert heal(given_, **of_family("gemini")).repairs == (
        Repair("result_order", "message 1", "put the results into the order of the calls"),
    )


@pytest.mark.promise("step:history-healed", "step:every-call-answered")
def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    """Every server refuses a call that nothing answers."""
    healed = heal((HELLO, calls(call("a"), call("b")), results(result("b")), HELLO), **of_family("openai_chat"))
    missing = replace(result("a", NO_RESULT), is_error=True)
    assert healed.messages == (HELLO, calls(call("a"), call("b")), results(missing, result("b")), HELLO)
    assert [repair.kind for repair in healed.repairs] == ["orphan_call"]


@pytest.mark.promise("step:history-healed")
def test_results_without_a_call_and_second_results_are_left_out() -> None:
    """The first result of a call counts."""
    given_ = (results(result("x")), HELLO, calls(call("a")), results(result("a", "1"), result("a", "2")), BYE)
    healed = heal(given_, **of_family("openai_chat"))
    assert healed.messages == (HELLO, calls(call("a")), results(result("a", "1")), BYE)
    assert healed.repairs == (
        Repair("orphan_result", "history", "left out 2 results that no call of the history asked for"),
    )


@pytest.mark.promise("step:history-healed")
@pytest.mark.parametrize(
    "given_",
    [
        (HELLO, calls(call("a")), HELLO, results(result("a")), BYE),
        (HELLO, results(result("a")), calls(call("a")), HELLO, BYE),
        (HELLO, calls(call("a")), Message("user", (result("a"), Text("hello"))), BYE),
        (HELLO, calls(call("a")), results(Text("hello"), result("a")), BYE),
        (HELLO, calls(call("a")), BYE, Message("user", (result("a"),)), HELLO),
    ],
)
def test_a_result_in_the_wrong_place_goes_behind_its_call(given_: tuple[Message, ...]) -> None:
    """After other messages, before the call, in a user's message, beside a text."""
    healed = heal(given_, **of_family("openai_chat"))
    assert healed.messages[:3] == (HELLO, calls(call("a")), results(result("a")))
    assert sorted(healed.messages[3:], key=str) == sorted([HELLO, BYE], key=str)
    assert healed.repairs


@pytest.mark.promise("step:history-healed", "assembly:id-twice")
def test_an_id_used_again_is_made_unique_and_pairs_rightly() -> None:
    """Some providers call every first call `call_1`; results pair by where they stand."""
    given_ = (
        HELLO,
        calls(call("a"), call("a")),
        results(result("a", "1"), result("a", "2")),
        calls(call("a")),
        results(result("a", "3")),
        calls(call("")),
        results(result("", "4")),
    )
    healed = heal(given_, **of_family("openai_chat"))
    assert healed.messages == (
        HELLO,
        calls(call("a"), call("a_2")),
        results(result("a", "1"), result("a_2", "2")),
        calls(call("a_3")),
        results(result("a_3", "3")),
        calls(call("call_1")),
        results(result("call_1", "4")),
    )
    assert {repair.kind for repair in healed.repairs} == {"call_id"}


@pytest.mark.promise("step:history-healed")
def test_what_a_family_refuses_is_left_out_for_it_only() -> None:
    """Blank text, reasoning at the end, a first message that is not a user's, ids with other characters; names stay."""
    odd = ToolCall(id="x:1", name="read file")
    given_ = (calls(Text(" "), odd, Reasoning("hm")), results(result("x:1")), calls(Reasoning("only")), calls())
    chat = heal(given_, **of_family("openai_chat"))
    assert chat.messages == (given_[0], results(result("x:1", name="read file")))
    assert [repair.kind for repair in chat.repairs] == ["empty_message", "empty_message"]
    strict = heal(given_, **of_family("anthropic_messages"))
    fit = unique_id("x:1", taken=(), traits=traits_of("anthropic_messages"))
    assert strict.messages == (
        Message("user", (Text(BEGINNING_MISSING),)),
        calls(ToolCall(id=fit, name="read file")),
        results(result(fit, name="read file")),
    )


def test_results_under_mixed_up_ids_belong_to_the_calls_before_them() -> None:
    """As many results as calls right behind them: taken in order (a recorded Anthropic conversation has such a pair)."""
    given_ = (HELLO, calls(call("a"), call("b")), results(result("x", "1"), result("b", "2")), BYE)
    healed = heal(given_, **of_family("anthropic_messages"))
    assert healed.messages[2] == results(result("a", "1"), result("b", "2"))
    assert healed.repairs == (Repair("result_id", "call a", "took the result of `x` for its own"),)


def test_items_of_another_family_alone_are_no_message() -> None:
    """Their encoder leaves them out, and an empty message would be refused."""
    item = ProviderItem("openai_responses", "web_search_call", "{}")
    signed = Text("", opaque=Opaque("gemini", '{"thoughtSignature":"x"}'))
    given_ = (HELLO, calls(item), calls(signed))
    assert heal(given_, **of_family("gemini")).messages == (HELLO, calls(signed))
    assert heal(given_, **of_family("openai_responses")).messages == (HELLO, calls(item))


@pytest.mark.promise("step:history-healed")
@pytest.mark.parametrize("arguments", ['{"a":', "[1]", "", "nope", "[" * 5000])
def test_arguments_that_servers_cannot_read_go_back_as_an_empty_object(arguments: str) -> None:
    """Whatever state an importer claimed. Free-form text stays as it is."""
    for state in ArgumentsState:
        bad = ToolCall(id="a", name="read", arguments=arguments, state=state, reason="cut")
        healed = heal((HELLO, calls(bad), results(result("a"))), **of_family("openai_chat"))
        assert healed.messages[1] == calls(call("a"))
    text = ToolCall(id="a", name="read", arguments=arguments, state=ArgumentsState.TRUNCATED, free_form=True)
    healed = heal((HELLO, calls(text), results(result("a"))), **of_family("openai_responses"))
    assert healed.messages[1] == calls(replace(text, state=ArgumentsState.COMPLETE))


VLLM = "chatcmpl-tool-" + "0123456789abcdef" * 2  # what vLLM makes: 46 characters
LONG = "call_" + "x" * 95


@pytest.mark.promise("step:history-healed")
@pytest.mark.parametrize(
    ("family", "limit"), [("openai_chat", 40), ("openai_responses", 64), ("anthropic_messages", 64)]
)
def test_ids_longer_than_the_family_takes_are_cut_and_their_results_follow(family: str, limit: int) -> None:
    """Public reports: langmanus#119, opencode#12653, fastllm#45. Ids that begin alike stay apart, whatever stands before."""
    other = LONG + "y"
    given_ = (HELLO, calls(call(LONG), call(other)), results(result(LONG, "1"), result(other, "2")))
    healed = heal(given_, **of_family(family))
    ids = [part.id for part in healed.messages[1].parts if isinstance(part, ToolCall)]
    assert [len(id) for id in ids] == [limit, limit] and len(set(ids)) == 2
    assert healed.messages[2] == results(result(ids[0], "1"), result(ids[1], "2"))
    assert [repair.kind for repair in healed.repairs] == ["call_id", "call_id"]
    alone = heal((HELLO, calls(call(other)), results(result(other, "2"))), **of_family(family))
    assert alone.messages[1] == calls(call(ids[1]))
    again = heal((calls(call(other)), results(result(other))), **of_family(family), taken_ids=ids)
    (renamed,) = again.call_ids - set(ids)
    assert renamed.endswith("_2") and len(renamed) == limit


def test_an_id_of_vllm_is_cut_for_chat_and_no_other() -> None:
    """46 characters: too many for Chat Completions, few enough for the others."""
    assert unique_id(VLLM, taken=(), traits=traits_of("openai_chat")) == "chatcmpl-tool-0123456789abcdef0_634a830d"
    for family in ("openai_responses", "anthropic_messages", "gemini"):
        assert unique_id(VLLM, taken=(), traits=traits_of(family)) == VLLM


def test_a_signature_inside_an_id_stays_whole_for_the_family_that_put_it_there() -> None:
    """LiteLLM keeps Gemini's signature in a Chat call's id and needs it back (litellm#16895)."""
    carrying = f"call_1__thought__{'c2lnbmVk' * 20}=="
    assert unique_id(carrying, taken=(), traits=traits_of("openai_chat")) == carrying
    assert len(unique_id(carrying, taken=(), traits=traits_of("anthropic_messages"))) == 64


@pytest.mark.promise("step:history-healed")
def test_ids_that_differ_in_punctuation_alone_stay_apart() -> None:
    """Anthropic takes letters, digits, `_` and `-`; which of two ids came first must not matter to either."""
    ids = ["functions.read:0", "functions:read.0", "functions_read_0"]
    fit = [unique_id(id, taken=(), traits=traits_of("anthropic_messages")) for id in ids]
    assert fit[2] == ids[2] and len(set(fit)) == 3
    assert all(id.startswith("functions_read_0") for id in fit)
    given_ = (HELLO, calls(*[call(id) for id in ids]), results(*[result(id, id) for id in ids]))
    healed = heal(given_, **of_family("anthropic_messages"))
    assert healed.messages[2] == results(*[result(new, old) for new, old in zip(fit, ids, strict=True)])


@pytest.mark.promise("step:history-healed", "step:every-call-answered")
@pytest.mark.parametrize("content", [(), (Text(""),), (Text(" \n"), Text("\t"))])
def test_a_failed_result_without_a_word_says_that_there_was_none(content: tuple[Text, ...]) -> None:
    """Anthropic: "content cannot be empty if `is_error` is true" (markform#153)."""
    empty = ToolResult(call_id="a", name="read", content=content, is_error=True)
    healed = heal((HELLO, calls(call("a")), results(empty)), **of_family("anthropic_messages"))
    assert healed.messages[2] == results(replace(empty, content=(Text("(no output)"),)))


ids = st.sampled_from(["", "a", "b", "a_2", "a.b", "a:b", "x" * 90])
parts: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, st.sampled_from(["", " ", "x"])), st.builds(call, ids), st.builds(result, ids, st.text(max_size=2))
)
histories = st.lists(
    st.builds(
        Message, st.sampled_from(["system", "user", "assistant", "tool"]), st.lists(parts, max_size=3).map(tuple)
    ),
    max_size=8,
)


@pytest.mark.promise("step:history-healed")
@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(given_=histories, family=st.sampled_from(["openai_chat", "openai_responses", "anthropic_messages", "gemini"]))
def test_healing_twice_changes_nothing_more(given_: list[Message], family: str) -> None:
    """Healed history is sound, so the next turn begins with the same bytes."""
    once = heal(given_, **of_family(family))
    twice = heal(once.messages, **of_family(family))
    assert (twice.messages, twice.repairs) == (once.messages, ())


odd_parts: st.SearchStrategy[Part] = st.one_of(
    parts,
    st.builds(
        ToolCall,
        id=st.sampled_from(["a", "b", "a.b", "", "x" * 41]),
        name=st.sampled_from(["read", "read file", ""]),
        arguments=st.sampled_from(["{}", '{"a":1}', "[]", '{"a":', ""]),
        state=st.sampled_from([ArgumentsState.COMPLETE, ArgumentsState.COMPLETE, ArgumentsState.INVALID]),
        free_form=st.booleans(),
        alternatives=st.sampled_from([(), (), ("{}", "{}")]),
    ),
    st.builds(
        ToolResult,
        call_id=st.sampled_from(["a", "b", "a.b", "x" * 41]),
        name=st.sampled_from(["read", "read file"]),
        content=st.lists(
            st.sampled_from([Text("ok"), Text(" "), File(media_type="image/png", url="https://x")]), max_size=2
        ).map(tuple),
        free_form=st.booleans(),
    ),
    st.builds(
        Text,
        st.sampled_from(["", " ", "x"]),
        opaque=st.builds(Opaque, st.sampled_from(["gemini", "other"]), st.just("{}")),
    ),
    st.just(Reasoning("hm")),
    st.just(Refusal("no")),
    st.just(File(media_type="image/png", url="https://x")),
    st.builds(ProviderItem, st.sampled_from(["anthropic_messages", "gemini"]), st.just("item"), st.just("{}")),
)
IMAGE = File(media_type="image/png", url="https://x")
ODD_CALLS = (
    {"name": "read file"},
    {"arguments": '{"a":'},
    {"arguments": "[]"},
    {"arguments": "text", "free_form": True},
    {"state": ArgumentsState.INVALID},
    {"alternatives": ("{}", "{}")},
    {"id": "a.b"},
    {"id": "x" * 65},
    {"id": ""},
)
ODD_RESULTS = (
    {"call_id": "b"},
    {"name": "write"},
    {"free_form": True},
    {"content": ()},
    {"content": (Text(" "),)},
    {"content": (Text("ok"), IMAGE)},
)


@st.composite
def exchanges(draw: st.DrawFn) -> tuple[Message, ...]:
    """Calls and their results, sound but for one thing at most."""
    asked = [call(name) for name in draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=2, unique=True))]
    odd_call = draw(st.sampled_from([{}] * 6 + [*ODD_CALLS]))
    asked[0] = replace(asked[0], **odd_call)
    told = [replace(result(one.id, name=one.name), free_form=one.free_form) for one in asked]
    if not odd_call:
        told[0] = replace(told[0], **draw(st.sampled_from([{}] * 3 + [*ODD_RESULTS])))
    return draw(st.sampled_from([(calls(*asked), results(*told))] * 6 + [(calls(*asked),), (results(*told),)]))


odd_messages = st.builds(
    Message, st.sampled_from(["system", "user", "assistant", "tool"]), st.lists(odd_parts, max_size=3).map(tuple)
)
ILLUSTRATED = Message("system", (Text("be kind"), IMAGE))
pieces = st.one_of(
    st.sampled_from([(HELLO,), (BYE,), (BYE, BYE), (SOUND[0],), (ILLUSTRATED,), (calls(Text("so"), Reasoning("hm")),)]),
    exchanges(),
    exchanges(),
    odd_messages.map(lambda message: (message,)),
)
odd_histories = st.lists(pieces, max_size=4).map(lambda found: tuple([message for piece in found for message in piece]))


@pytest.mark.costly
@pytest.mark.promise("step:history-healed")
@settings(max_examples=examples(1000), deadline=None, derandomize=True)
@given(
    given_=odd_histories,
    family=st.sampled_from(["openai_chat", "openai_responses", "anthropic_messages", "gemini"]),
    taken=st.sampled_from([(), ("a",)]),
)
@example(given_=(HELLO, BYE, BYE), family="gemini", taken=())
@example(given_=(HELLO, calls(call("a")), HELLO), family="openai_chat", taken=())
@example(given_=(HELLO, calls(Text("so"), Reasoning("hm"))), family="openai_responses", taken=())
def test_sound_history_is_told_by_a_short_look_as_by_a_close_one(
    given_: tuple[Message, ...], family: str, taken: tuple[str, ...]
) -> None:
    """A stray result in front makes every message be looked at closely, and goes: nothing else may differ by it."""
    stray = results(result("stray"))
    short = heal(given_, **of_family(family), taken_ids=taken)
    close = heal((stray, *given_), **of_family(family), taken_ids=taken)
    assert short.messages == close.messages
    assert short.call_ids == close.call_ids
    own = [repair.kind for repair in short.repairs if repair.kind != "orphan_result"]
    assert own == [repair.kind for repair in close.repairs if repair.kind != "orphan_result"]


NUMBERS = ("1", "-0", "1e5", "1e999", "01", "1.", "NaN", "9" * 400)
values = st.one_of(
    st.sampled_from((*NUMBERS, '"a"', '"\\ud800"', '"\ud800"', "true", "nul", "[" * 3000, "{}", "[]")),
    st.text(max_size=3),
)
argument_texts = st.one_of(
    values,
    st.lists(st.tuples(st.sampled_from(('"a"', '"é"', "a", "1", '"a"')), values), max_size=3).map(
        lambda fields: "{" + ",".join([f"{key}:{value}" for key, value in fields]) + "}"
    ),
    st.sampled_from((" {} ", '{"a":1}{"b":2}', '{"a":1},', "\ufeff{}", "")),
)


@pytest.mark.promise("step:history-healed")
@settings(max_examples=examples(500), deadline=None)
@given(text=argument_texts)
@example(text='{"a":1e999}')
def test_arguments_stay_where_strict_json_reads_an_object(text: str) -> None:
    """Whatever the quick reader of objects takes is what reading the whole value strictly takes."""
    try:
        is_object = isinstance(decode_strictly(text), dict)
    except ValueError:
        is_object = False
    asked = replace(call("a"), arguments=text)
    healed = heal((HELLO, calls(asked), results(result("a"))), **of_family("openai_chat"))
    kept = healed.messages[1].parts[0]
    assert isinstance(kept, ToolCall)
    assert (kept.arguments == text, not healed.repairs) == ((True, True) if is_object else (text == "{}", False))


def test_files_of_a_system_message_are_a_users() -> None:
    """OpenAI's Chat Completions takes files of nobody else; the other families as they come."""
    image = File(media_type="image/png", url="https://x/y.png")
    given_ = (Message("system", (Text("Be brief."), image)), Message("system", (image,)))
    healed = heal(given_, **of_family("openai_chat"))
    assert healed.messages == (
        Message("system", (Text("Be brief."),)),
        Message("user", (image,)),
        Message("user", (image,)),
    )
    assert [repair.kind for repair in healed.repairs] == ["misplaced_part", "misplaced_part"]
    assert heal(healed.messages, **of_family("openai_chat")).repairs == ()
    assert heal(given_, **of_family("openai_responses")).messages == given_
