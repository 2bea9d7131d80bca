"""Why a request begins otherwise than the one before it: each cause, and which of several is the first (issue 18: mutants that no
test noticed)."""

from typing import Any

import pytest
from msgspec.structs import replace

from families import of_family, traits_of
from tables import each
from turn.playing import ASK, CONFIG, READ, WRITE, call, play, says
from turnwise.turn.events import Purpose, StepPrepared
from turnwise.turn.machine import SessionFold
from turnwise.turn.request_plan import (
    PREFIX_EXCEPTIONS,
    Sent,
    caching_of,
    is_aside,
    limit_of,
    prefix_changes,
    sent_as,
    tools_chosen,
)
from turnwise.vocab import (
    Caching,
    Message,
    NamedTool,
    OutputSchema,
    Request,
    Settings,
    Text,
    ToolChoice,
)
from turnwise.wire.family import MODULES

SAID = Message("assistant", (Text("hi"),))
MORE = Message("user", (Text("and then?"),))
OTHER = Message("user", (Text("something else"),))
PLAIN = Request(model="m", messages=(ASK, SAID, MORE), tools=(READ.spec, WRITE.spec), settings=Settings())
SCHEMA = OutputSchema(schema='{"type":"object"}', name="N", strict=True)


def causes(now: Request, *, before: Request = PLAIN, own: int = 0, compacted: bool = False, marks: bool = False) -> str:
    old, new = [sent_as(one, own=own, config=CONFIG) for one in (before, now)]
    found = prefix_changes(old, now=new, compacted=compacted, traits=traits_of("openai_chat"), marks_cache=marks)
    return ", ".join(found)


SHORTER = replace(PLAIN, messages=(ASK, OTHER))
FORBIDDEN = replace(PLAIN, tool_choice="none")
THINKS = replace(PLAIN, settings=Settings(reasoning_tokens=1_000))


@pytest.mark.promise("step:prefix-stable")
@each(
    ("now", "plain", "marked"),
    [
        (PLAIN, "", ""),
        (replace(PLAIN, messages=(*PLAIN.messages, SAID)), "", ""),
        (replace(PLAIN, model="n"), "model", "model"),
        (replace(PLAIN, tools=(READ.spec,)), "tools", "tools"),
        (replace(PLAIN, system=(Text("Be long."),)), "system", "system"),
        (replace(PLAIN, output=SCHEMA), "output", "output"),
        (
            replace(PLAIN, model="n", tools=(), output=SCHEMA),
            "model, tools, output",
            "model, tools, output, tool choice",
        ),
        (FORBIDDEN, "", "tool choice"),
        (replace(PLAIN, parallel_tool_calls=False), "", "tool choice"),
        (THINKS, "", "thinking"),
        (replace(PLAIN, settings=Settings(reasoning_effort="high")), "", "thinking"),
        (replace(PLAIN, settings=Settings(temperature=0.5)), "", ""),
        (replace(THINKS, tool_choice="none"), "", "tool choice, thinking"),
        (SHORTER, "paused content", "paused content"),
        (replace(SHORTER, drops_stale_thinking=True), "stale thinking", "stale thinking"),
        (replace(PLAIN, lessons=("system_first",)), "server's rules", "server's rules"),
        (replace(PLAIN, lessons=("choice_auto",)), "", ""),
        (replace(PLAIN, messages=(ASK, SAID)), "paused content", "paused content"),
    ],
)
def test_each_cause_is_named_for_what_went_out(now: Request, plain: str, marked: str) -> None:
    """Proves: tool choice and thinking are causes at Anthropic's cache alone, and missing messages are one everywhere."""
    assert (causes(now), causes(now, marks=True)) == (plain, marked)


def test_every_cause_is_explained() -> None:
    """Proves: the table of exceptions to the stable prefix names what may be found, and nothing else."""
    everything = replace(
        THINKS,
        messages=(ASK, OTHER),
        model="n",
        tools=(READ.spec,),
        system=(Text("Be long."),),
        output=SCHEMA,
        tool_choice="none",
        drops_stale_thinking=True,
        lessons=("between",),
    )
    found = {
        *causes(everything, marks=True).split(", "),
        causes(SHORTER, compacted=True),
        causes(SHORTER),
        causes(replace(PLAIN, messages=(ASK, SAID)), own=1),
    }
    assert found == set(PREFIX_EXCEPTIONS)
    assert all(PREFIX_EXCEPTIONS.values())


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        (PLAIN, SHORTER, "compaction"),
        (PLAIN, replace(SHORTER, tool_choice="none"), "tool choice, compaction"),
        (FORBIDDEN, SHORTER, "compaction, tool choice"),
        (FORBIDDEN, replace(SHORTER, tool_choice="none"), "compaction"),
        (PLAIN, replace(SHORTER, settings=THINKS.settings), "thinking, compaction"),
        (FORBIDDEN, replace(SHORTER, settings=THINKS.settings), "compaction, tool choice, thinking"),
    ],
)
def test_the_first_cause_is_the_one_of_what_is_read_anew(before: Request, now: Request, found: str) -> None:
    """Proves: where tool choice comes back after a summary, what was kept before it is there, so the summary is the cause."""
    assert causes(now, before=before, compacted=True, marks=True) == found


@each(
    ("kept", "own", "compacted", "found"),
    [
        (3, 0, False, ""),
        (3, 1, True, ""),
        (2, 1, False, "last message"),
        (2, 1, True, "last message"),
        (1, 1, False, "paused content"),
        (1, 2, False, "last message"),
        (1, 2, True, "last message"),
        (1, 1, True, "compaction"),
        (0, 2, False, "paused content"),
        (0, 3, False, "last message"),
    ],
)
def test_messages_that_were_for_one_request_only_are_told_from_the_others(
    kept: int, own: int, compacted: bool, found: str
) -> None:
    """Proves: what the history did not hold is a last message, and what it held gave way or was paused."""
    assert causes(replace(PLAIN, messages=(*PLAIN.messages[:kept], OTHER)), own=own, compacted=compacted) == found


def test_the_first_request_has_nothing_before_it() -> None:
    """Proves: no cause is named."""
    now = sent_as(PLAIN, own=0, config=CONFIG)
    assert prefix_changes(None, now=now, compacted=True, traits=traits_of("openai_chat"), marks_cache=True) == ()


@pytest.mark.promise("step:prefix-stable")
@pytest.mark.parametrize(
    ("means", "choice", "changes"),
    [
        ("drop_tools", "none", ("request 2: tools", "request 3: tools")),
        ("drop_tools", "required", ()),
        ("send", "none", ()),
    ],
)
def test_an_endpoint_that_gets_no_tools_where_none_may_be_called_reads_another_beginning(
    means: str, choice: ToolChoice, changes: tuple[str, ...]
) -> None:
    """Proves: a step's own tool choice counts for what goes out, too: the tools are missing, and then they are back."""
    config = replace(CONFIG, tool_choice_none=means, prepares_steps=True)
    prepared = [StepPrepared(), StepPrepared(tool_choice=choice), StepPrepared()]
    called = says(call("b"))
    played = play([says(call("a")), called, says("Done.")], config=config, prepare=prepared)
    assert played.result.prefix_changes[: len(changes)] == changes
    assert (played.result.prefix_changes == ()) is (changes == ())


# what one request asks for


@pytest.mark.parametrize(
    ("family", "own", "default", "reasoning", "limit"),
    [
        ("openai_chat", None, None, None, None),
        ("openai_chat", 500, 4_096, 1_000, 500),
        ("openai_chat", None, 4_096, 1_000, 4_096),
        ("anthropic_messages", None, 4_096, None, 4_096),
        ("anthropic_messages", None, 4_096, 1_000, 5_096),
        ("anthropic_messages", 500, 4_096, 1_000, 500),
    ],
)
def test_the_limit_of_output_is_the_users_or_the_profiles(
    family: str, own: int | None, default: int | None, reasoning: int | None, limit: int | None
) -> None:
    """Proves: Anthropic's requests add the profile's own limit to a budget for reasoning, and nothing is added to the user's."""
    config = replace(CONFIG, **of_family(family), default_max_tokens=default)
    assert limit_of(Settings(max_output_tokens=own, reasoning_tokens=reasoning), config=config) == limit


@pytest.mark.parametrize("own", [0, 1, 2])
def test_the_cache_is_asked_for_what_the_user_wants(own: int) -> None:
    """Proves: nothing where it is off; else its hour, its key, and how much of the end is of this request only."""
    assert caching_of(CONFIG, own=own) is None
    short, long = [caching_of(replace(CONFIG, cache=kind, cache_key="k"), own=own) for kind in ("auto", "1h")]
    assert short == Caching(hour=False, key="k", passing=own)
    assert long == Caching(hour=True, key="k", passing=own)


@each(
    ("choice", "plain", "purpose", "before", "aside"),
    [
        ("auto", "auto", "step", None, False),
        ("auto", "auto", "compact", "step", True),
        ("none", "none", "compact", "step", True),
        ("none", "none", "answer", "step", False),
        ("none", "auto", "answer", "step", True),
        ("none", "auto", "compact", "step", True),
        ("none", "auto", "continue", "step", True),
        ("none", "auto", "continue", "continue", False),
        ("none", "auto", "step", "continue", True),
    ],
)
def test_what_no_later_request_reads_stands_aside(
    choice: ToolChoice, plain: ToolChoice, purpose: Purpose, before: Purpose | None, aside: bool
) -> None:
    """Proves: a summary, and what has a tool choice of its own but for a continuation that another one follows."""
    assert is_aside(replace(PLAIN, tool_choice=choice), purpose=purpose, before=before, plain=plain) is aside


@pytest.mark.parametrize(
    ("named", "offered"),
    [(("read",), ["read", "client"]), (("client",), ["client"]), ((), []), (("write", "gone"), ["write", "client"])],
)
def test_a_step_offers_the_tools_that_it_names(named: tuple[str, ...], offered: list[str]) -> None:
    """Proves: in the turn's order; the tool that goes with any goes with none where none is named."""
    specs = tuple([offer.spec for offer in CONFIG.tools])
    chosen = tools_chosen(StepPrepared(tools=named), specs=specs, always="client")
    assert [spec.name for spec in chosen] == offered


@pytest.mark.parametrize(
    ("own", "prepared", "told"),
    [
        (
            NamedTool("write"),
            StepPrepared(tools=("read",)),
            ["the tool choice of the turn is `write`, which is not on offer in this step"],
        ),
        (
            "auto",
            StepPrepared(tool_choice=NamedTool("gone")),
            ["prepare_step chose `gone`, which is not on offer in this step"],
        ),
        (
            "required",
            StepPrepared(tools=()),
            ["the tool choice of the turn is `required`, and no tool is on offer in this step"],
        ),
        ("none", StepPrepared(tools=()), []),
        ("required", StepPrepared(tools=("read",)), []),
        (
            "auto",
            StepPrepared(tools=("z", "read", "b")),
            ["prepare_step named `b`, which is no tool here", "prepare_step named `z`, which is no tool here"],
        ),
    ],
)
def test_what_cannot_be_done_of_a_prepared_step_is_told(
    own: ToolChoice, prepared: StepPrepared, told: list[str]
) -> None:
    """Proves: whose choice it was, what it named, and why it cannot be met; a choice of none is met by no tools."""
    played = play([says("ok")], config=replace(CONFIG, prepares_steps=True, tool_choice=own), prepare=[prepared])
    assert [(one.where, one.what) for one in played.result.repairs] == [("step 1", what) for what in told]


def test_what_is_sent_is_known_with_its_end_and_its_tools() -> None:
    """Proves: the next request is compared with what went out."""
    assert sent_as(PLAIN, own=2, config=CONFIG) == Sent(request=PLAIN, own=2, tools=PLAIN.tools)


# what changed since the turn before


@pytest.mark.promise("step:prefix-stable")
@each("family", MODULES)
@each(
    ("other", "change"),
    [
        ({}, ()),
        ({"tools": CONFIG.tools[:1]}, ("request 1: tools",)),
        ({"tools": CONFIG.tools[::-1]}, ("request 1: tools",)),
        ({"system": (Text("Be long."),)}, ("request 1: system",)),
        ({"model": "another"}, ("request 1: model",)),
        ({"tools": (), "system": (Text("Be long."),)}, ("request 1: tools", "request 1: system")),
    ],
)
def test_a_session_s_next_turn_names_what_is_not_as_in_the_turn_before(
    family: str, other: dict[str, Any], change: tuple[str, ...]
) -> None:
    """Proves: a toolset or MCP server that offers other tools, another model and other instructions break the prefix between two
    turns of a session as they do within one, in each family; the messages of the session are no change. The list was empty."""
    config = replace(CONFIG, **of_family(family))
    fold = SessionFold()
    fold.take_events(play([says(call("a")), says("One.")], config=config).events)
    played = play([says(call("b")), says("Two.")], config=replace(config, **other), earlier=fold.carried)
    assert played.result.prefix_changes == change
