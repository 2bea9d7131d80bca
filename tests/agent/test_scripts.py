"""Scripted steps through the library's face: what is offered, and what the lab counts."""

import builtins
import keyword
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest

from flat_agents import flat_agent
from turnwise import (
    Agent,
    Approval,
    Asking,
    Journal,
    Message,
    PermissionRule,
    Policy,
    RetryPolicy,
    RunResult,
    StopReason,
    read_prices,
    tool,
)
from turnwise.agent.agent_setup import BOUNDS, SCRIPT, check_script_limits, script_tool
from turnwise.agent.children import TASK
from turnwise.agent.tools import read_tools
from turnwise.coding_agent.workplace import ASK_USER
from turnwise.errors import CallerError
from turnwise.journal.ledger_queries import LedgerSpan
from turnwise.journal.prices import Prices
from turnwise.lab import Lab
from turnwise.rules.pricing import PriceRow
from turnwise.running.tools import Arguments, Tool
from turnwise.testing import FakeClock, ScriptedModel, call
from turnwise.tools.workspace import workspace_tools
from turnwise.turn.config import ScriptLimits, ToolOffer
from turnwise.turn.events import ScriptCalled, ScriptFinished
from turnwise.turn.programs import PRELUDE
from turnwise.vocab import Fault, FaultKind, ToolResult, ToolSpec, text_of

BASES = {"gemini": "/v1beta", "anthropic_messages": ""}  # Anthropic's base URL has no version
each_family = pytest.mark.parametrize("family", ["openai_chat", "openai_responses", "anthropic_messages", "gemini"])
CHECK = 'if grep -q "return a + b$" calc.py; then echo "3 passed"; else echo "1 failed: add(1, 2) is not 3"; fi\n'
PATH = '{"type":"object","properties":{"path":{"type":"string"}}}'
BY_REQUEST = Prices(user={"m": PriceRow(plan="request", source="test", request_usd=None)})
BY_TOKEN = Prices(user={"m": PriceRow(plan="free", source="test")})


@tool(effect="read")
def read(path: str, limit: int | None = None) -> str:
    """Read a file."""
    return f"{path}, {limit}"


@tool
def mark(word: Literal["good", "bad"], places: list[int]) -> str:
    """Mark places."""
    return f"{word} {places}"


def agent_on(lab: Lab, model: str, *, family: str, folder: Path, script: bool, journal: Journal | None = None) -> Agent:
    return flat_agent(
        f"{family}:{model}",
        base_url=lab.url + BASES.get(family, "/v1"),
        tools=workspace_tools(folder),
        script=script,
        journal=journal,
        folder=folder,
    )


def names_offered(agent_options: dict[str, object], *, prices: Prices) -> list[str]:
    model = ScriptedModel(["Done."])
    agent = flat_agent(
        "openai_chat:m",
        base_url=model.endpoint.base_url,
        transport=model,
        tools=[read],
        prices=prices,
        room="off",
        **agent_options,  # pyright: ignore[reportArgumentType]
    )
    agent.run_sync("go")
    return [offered.name for offered in model.asked[0].tools]


@each_family
@pytest.mark.promise("bill:saved")
async def test_read_edit_test_mend_answer_takes_two_requests_with_a_program(family: str, tmp_path: Path) -> None:
    """Proves: what takes six requests call by call takes two in one program, on real files, by the lab's own count."""
    counts: dict[str, int] = {}
    async with Lab() as lab:
        for model in ("script-read-edit-test", "script-step-by-step"):
            (tmp_path / "calc.py").write_text("def add(a, b):\n    return a - b\n")
            (tmp_path / "check.sh").write_text(CHECK)
            lab.reset()
            result = await agent_on(lab, model, family=family, folder=tmp_path, script=True).run("Mend add.")
            assert (result.text[-15:], result.complete) == ("Done: 3 passed.", True)
            assert (tmp_path / "calc.py").read_text() == "def add(a, b):\n    return a + b\n"
            assert result.requests == lab.count()
            counts[model] = lab.count()
    assert counts == {"script-read-edit-test": 2, "script-step-by-step": 6}


@each_family
@pytest.mark.promise("bill:saved")
async def test_ten_independent_reads_take_two_requests(family: str, tmp_path: Path) -> None:
    """Proves: ten reads are one step of the interpreter and one request; the journal has each of them, the history none."""
    for number in range(10):
        (tmp_path / f"part-{number}.txt").write_text("bees\n" if number % 2 else "ants\n")
    with Journal(None, clock=FakeClock()) as journal:
        async with Lab() as lab:
            agent = agent_on(lab, "script-ten-reads", family=family, folder=tmp_path, script=True, journal=journal)
            result = await agent.run("How many of them are about bees?")
            assert lab.count() == result.requests == 2
        assert result.text == "Bees are in 5 of 10 files."
        events = journal.events(journal.find_session(result.session).turns[0].id)
    batches = [[one.name for one in event.calls] for event in events if isinstance(event, ScriptCalled)]
    assert batches == [["read"] * 10]
    assert [event.text for event in events if isinstance(event, ScriptFinished)] == ["5 of 10\n"]
    results = [part for message in result.messages for part in message.parts if isinstance(part, ToolResult)]
    assert [part.name for part in results] == [SCRIPT]


@pytest.mark.promise("bill:saved")
def test_it_is_on_offer_where_the_plan_bills_by_the_request() -> None:
    """Proves: `auto` looks at the price; what is said holds against it either way."""
    assert names_offered({}, prices=BY_REQUEST) == ["read", "script"]
    assert names_offered({}, prices=BY_TOKEN) == ["read"]
    assert names_offered({}, prices=Prices()) == ["read"]
    assert names_offered({"script": False}, prices=BY_REQUEST) == ["read"]
    assert names_offered({"script": True}, prices=BY_TOKEN) == ["read", "script"]


@pytest.mark.promise("bill:saved", "wait:ask")
async def test_a_program_that_is_allowed_later_is_counted_with_the_next_request() -> None:
    """Proves: the person leaves the program for later; the run that takes the answer up runs it before its first request, and
    that one has the calls in the ledger. Nothing of it ran before, and it ran once."""
    ran: list[str] = []

    @tool(effect="read")
    def look(path: str) -> str:
        """Look."""
        ran.append(path)
        return path

    async def approver(asking: Asking) -> list[Approval]:
        return [Approval(call_id=ask.call.id, verdict="later") for ask in asking.asks]

    with Journal(None, clock=FakeClock()) as journal:
        model = ScriptedModel(
            [call(SCRIPT, id="c", program='look("a")\nawait asyncio.gather(look("b"), look("c"))'), "Done."]
        )
        agent = flat_agent(
            "openai_chat:m",
            base_url=model.endpoint.base_url,
            transport=model,
            tools=[look],
            script=True,
            policy=Policy(rules=(PermissionRule(verdict="ask", tool=SCRIPT),), attended=True),
            approver=approver,
            prices=Prices(user=read_prices({"*": {"request": "0.01"}}, named="the test", source="the test")),
            journal=journal,
        )
        first = await agent.run("go")
        assert (first.stop_reason, ran, [ask.call.id for ask in first.asks]) == (StopReason.WAITING, [], ["c"])
        approved = [Approval(call_id="c", verdict="allow")]
        second = await agent.run(session=first.session, approvals=approved)
        assert (second.text, ran) == ("Done.", ["a", "b", "c"])
        entries = journal.ledger.entries(LedgerSpan())
        assert [(one.calls, one.programs, one.program_calls) for one in entries] == [(1, 0, 0), (0, 1, 3)]
        bills = journal.ledger.bills_by_request(LedgerSpan())
        assert sum(bill.saved.requests for bill in bills) == 2
        assert [one.saved_requests for one in (*first.ledger, *second.ledger)] == [0, 2]


async def test_a_fallback_has_the_same_tools_whatever_its_plan() -> None:
    """Proves: `auto` is decided by the agent's own model for the whole turn, so that the prefix stays."""
    for rows, offered in ((BY_REQUEST.user, True), (BY_TOKEN.user, False)):
        model = ScriptedModel([Fault(kind=FaultKind.SERVER, message="down", status=500), "Done."])
        agent = flat_agent(
            "openai_chat:m",
            base_url=model.endpoint.base_url,
            transport=model,
            tools=[read],
            prices=Prices(user={**rows, "other": BY_TOKEN.user["m"] if offered else BY_REQUEST.user["m"]}),
            retry=RetryPolicy(attempts=1),
            fallbacks=["other"],
        )
        assert (await agent.run("go")).text == "Done."
        assert [(one.model, SCRIPT in [tool.name for tool in one.tools]) for one in model.asked] == [
            ("m", offered),
            ("other", offered),
        ]


@pytest.mark.promise("step:prefix-stable")
async def test_a_model_that_never_uses_it_makes_the_same_requests() -> None:
    """Proves: no request more, and each begins with the bytes of the one before, as without the tool."""
    counted: list[list[bytes]] = []
    for script in (False, True):
        model = ScriptedModel([call("read", path="a"), call("read", path="b"), "Done."])
        agent = flat_agent(
            "openai_chat:m", base_url=model.endpoint.base_url, transport=model, tools=[read, mark], script=script
        )
        result = await agent.run("go")
        assert result.prefix_changes == ()
        assert len({request.tools for request in model.asked}) == 1
        counted.append([text_of(message).encode() for message in model.asked[-1].messages])
    assert counted[0] == counted[1]


def test_the_description_names_each_function_in_one_line() -> None:
    """Proves: signatures come from the schemas, a name that Python cannot say is made one, and what runs elsewhere is left
    out; equal tools give equal bytes."""
    own = read_tools(
        [
            read,
            mark,
            ToolSpec(name="at_the_client"),
            Tool(offer=read.tool.offer.__class__(spec=ToolSpec(name="web-fetch", free_form=True))),
            Tool(offer=read.tool.offer.__class__(spec=ToolSpec(name="import", parameters='{"type":"object"}'))),
            Tool(offer=read.tool.offer.__class__(spec=ToolSpec(name="list", parameters=PATH))),
            Tool(offer=read.tool.offer.__class__(spec=ToolSpec(name="odd", parameters='{"properties":[]}'))),
        ]
    )
    made, again = script_tool(own), script_tool(own)
    assert made is not None and made == again
    assert made.offer.spec.description.partition("Functions:\n")[2].splitlines() == [
        "read(path: str, limit: int | None = ...)",
        'mark(word: "good" | "bad", places: list[int])',
        "web_fetch(input: str)  # the tool `web-fetch`",
        "import_()  # the tool `import`; `import` is Python's own",
        "list_(path: str = ...)  # the tool `list`; `list` is Python's own",
        "odd(...)",
    ]


def described(tools: Sequence[Tool]) -> list[str]:
    """The functions as the description names them."""
    made = script_tool(tools)
    assert made is not None
    lines = made.offer.spec.description.partition("Functions:\n")[2].splitlines()
    return [line.partition("(")[0] for line in lines]


def python_builtins() -> list[str]:
    return [name for name in dir(builtins) if not name.startswith("_")]


def recorders(names: Sequence[str], *, ran: list[str]) -> tuple[Tool, ...]:
    def made(name: str) -> Tool:
        def run(_: Arguments) -> str:
            ran.append(name)
            return f"<{name}>"

        return Tool(offer=ToolOffer(spec=ToolSpec(name=name, parameters=PATH)), function=run)

    return tuple([made(name) for name in names])


def shipped(folder: Path) -> list[str]:
    """All tools that come with turnwise."""
    return [*[one.name for one in workspace_tools(folder)], ASK_USER, TASK]


@pytest.mark.costly
@pytest.mark.parametrize("taken", [False, True])
def test_what_is_described_is_what_runs(taken: bool, tmp_path: Path) -> None:
    """Proves: each tool that comes with turnwise, and each that has the name of a keyword, a built-in or of what every program
    has imported, is called by the name that the description gives it; Python's own stays Python's."""
    odd = ["web-fetch", "web_fetch", "list_", "2nd", "__import__", "__name__"]
    names = sorted(dict.fromkeys([*keyword.kwlist, *python_builtins(), *PRELUDE, *odd])) if taken else shipped(tmp_path)
    ran: list[str] = []
    tools = recorders(names, ran=ran)
    functions = described(tools)
    assert len(set(functions)) == len(names)
    lines = [f"print({function}(path='a'), {function}('b'))" for function in functions]
    program = "\n".join(
        [*lines, "print(list('ab'), len('ab'), sum(range(3)), json.dumps(1), isinstance(ran := [], list))"]
    )
    model = ScriptedModel([call("script", program=program), "Done."])
    agent = flat_agent(
        "openai_chat:m",
        base_url=model.endpoint.base_url,
        transport=model,
        tools=tools,
        script=True,
        script_limits=ScriptLimits(calls=1000),
    )
    result = agent.run_sync("go")
    expected = [f"<{name}> <{name}>" for name in names]
    assert said_by_script(result).splitlines() == [*expected, "['a', 'b'] 2 3 1 True"]
    assert ran == [name for name in names for _ in range(2)]


def test_a_program_lists_a_real_folder(tmp_path: Path) -> None:
    """Proves: turnwise's own tool `list` is called in a program as its description says."""
    (tmp_path / "a.txt").write_text("a")
    model = ScriptedModel([call("script", program='print(list_(path="."))'), "Done."])
    tools = workspace_tools(tmp_path)
    agent = flat_agent("openai_chat:m", base_url=model.endpoint.base_url, transport=model, tools=tools, script=True)
    assert said_by_script(agent.run_sync("go")) == "a.txt (1)\n"


def test_a_program_that_takes_a_builtin_for_the_tool_is_told() -> None:
    """Proves: where `list(path=...)` is Python's own and fails, the result says what the tool is called."""
    model = ScriptedModel([call("script", program='print(list(path="src"))'), "Done."])
    tools = recorders(["list"], ran=[])
    agent = flat_agent("openai_chat:m", base_url=model.endpoint.base_url, transport=model, tools=tools, script=True)
    lines = said_by_script(agent.run_sync("go")).splitlines()
    assert lines[0].startswith("line 1: The program failed: TypeError: list")  # the rest is the interpreter's
    assert lines[1:] == [
        '    line 1: print(list(path="src"))',
        "In a program the tool `list` is called `list_`.",
        "No call had run.",
    ]


def said_by_script(result: RunResult) -> str:
    (found,) = [part for message in result.new_messages for part in message.parts if isinstance(part, ToolResult)]
    return text_of(Message("user", found.content))


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (ScriptLimits(cpu_s=-1), "`cpu_s` is -1; give a number from 0.01 to 86,400"),
        (ScriptLimits(cpu_s=float("nan")), "`cpu_s` is nan; give a number from 0.01 to 86,400"),
        (ScriptLimits(sleep_s=float("inf")), "`sleep_s` is inf; give a number from 0 to 2,592,000"),
        (ScriptLimits(memory_bytes=2**70), "`memory_bytes` is 1180591620717411303424; give a whole number from"),
        (ScriptLimits(memory_bytes=0), "`memory_bytes` is 0; give a whole number from"),
        (ScriptLimits(calls=-1), "`calls` is -1; give a whole number from 0 to 1,000,000"),
        (ScriptLimits(call_bytes=1.5), "`call_bytes` is 1.5; give a whole number"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_a_limit_that_is_none_is_refused_when_the_agent_is_made(limits: ScriptLimits, words: str) -> None:
    """Proves: a caller's mistake is told before anything is paid for, with the name and what would do."""
    with pytest.raises(CallerError, match=re.escape(words)):
        flat_agent("openai_chat:m", base_url="http://127.0.0.1:9", script_limits=limits)


def test_each_limit_has_its_bounds() -> None:
    """Proves: no limit is left unlooked at, and the defaults are within."""
    assert list(BOUNDS) and set(BOUNDS) == set(ScriptLimits.__struct_fields__)
    check_script_limits(ScriptLimits())


def test_nothing_is_offered_where_nothing_can_be_called() -> None:
    """Proves: no tool for an agent without tools of its own, and a user's own `script` stays theirs."""

    @tool(name="script")
    def own(text: str) -> str:
        return text

    assert script_tool(()) is None
    assert script_tool(read_tools([ToolSpec(name="at_the_client")])) is None
    assert script_tool(read_tools([read, own])) is None
