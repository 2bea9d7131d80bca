"""What a run is given: unknown names raise, settings stand over the agent's. After Ctrl-C the text and the bill are there."""

import json
import math
import re
import signal
import subprocess
import sys
from decimal import Decimal

import msgspec
import pytest
from msgspec.structs import replace

from flat_agents import flat_agent, grouped
from turnwise import Agent, CallerError, MissingKey, RunInterrupted, RunResult, Settings
from turnwise.agent.agent_options import settings_over
from turnwise.agent.run_setup import TypedRunOptions
from turnwise.errors import UnknownOption
from turnwise.lab import Lab
from turnwise.lab.script import parse_script
from turnwise.rules.limits import MaxCost, MaxRequests, MaxSteps, MaxTokens, MaxToolCalls, MaxWallTime
from turnwise.rules.prompt_room import ModelLimits
from turnwise.running.watcher_events import FrameSeen, WatcherEvent
from turnwise.settings.options import OptionRow, rows
from turnwise.vocab import Repair
from waits import HANG_S

SCRIPTS = [
    parse_script('title = "answers"\n[[steps]]\ntext = "The **answer**."\n', name="answers"),
    parse_script(
        'title = "stalls in its answer"\n[[steps]]\ntext = "The answer begins here, and it is sent in several pieces."\n'
        'fault = { kind = "stall", at = "text" }\n',
        name="stalls",
    ),
]


@pytest.fixture
def lab() -> Lab:
    return Lab(SCRIPTS)


def agent_at(lab: Lab, model: str = "answers", **options: object) -> Agent:
    return flat_agent(f"openai_chat:{model}", base_url="http://127.0.0.1:9/v1", transport=lab.transport(), **options)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", [name[:-1] for name in sorted(TypedRunOptions.__annotations__)])
def test_an_option_with_a_letter_less_raises_and_names_the_right_one(lab: Lab, name: str) -> None:
    """Proves: `limit=MaxRequests(2)` does not run without limits. No request is made."""
    with pytest.raises(TypeError) as caught:
        agent_at(lab).run_sync("go", **{name: None})  # pyright: ignore[reportArgumentType]
    assert isinstance(caught.value, CallerError)
    assert f"`{name}` is no option of a run. " in str(caught.value)
    right = "recovery={" if name == "recover" else f"Did you mean `{name}"
    assert right in str(caught.value)
    assert not lab.requests


def test_an_option_like_no_other_raises_with_all_of_them(lab: Lab) -> None:
    with pytest.raises(CallerError, match=r"`xyz` is no option of a run\. The options are: again, approvals, .*watch"):
        agent_at(lab).run_sync("go", xyz=1)  # pyright: ignore[reportCallIssue]


async def test_unknown_options_raise_in_every_way_to_run(lab: Lab) -> None:
    with pytest.raises(CallerError, match="Did you mean `limits`"):
        await agent_at(lab).run("go", limit=None)  # pyright: ignore[reportCallIssue]
    with pytest.raises(CallerError, match="Did you mean `limits`"):
        async for _ in agent_at(lab).stream("go", limit=None):  # pyright: ignore[reportCallIssue]
            pass


def test_settings_of_a_run_stand_over_those_of_the_agent_field_by_field(lab: Lab) -> None:
    agent = agent_at(lab, settings=Settings(max_output_tokens=700, temperature=0.25, stop=("END",)))
    agent.run_sync("go", settings=Settings(temperature=0.0, seed=7))
    body = json.loads(lab.requests[-1].body)
    assert body["max_tokens" if "max_tokens" in body else "max_completion_tokens"] == 700
    assert (body["temperature"], body["seed"], body["stop"]) == (0.0, 7, ["END"])


@pytest.mark.parametrize("field", Settings.__struct_fields__)
def test_each_field_is_taken_over_alone(field: str) -> None:
    """A field that is new in `Settings` merges like the others."""
    values = {"stop": ("x",), "reasoning_effort": "low"}
    own, given = Settings(), Settings(**{field: values.get(field, 1)})  # pyright: ignore[reportArgumentType]
    assert settings_over(own, given) == given
    assert settings_over(given, Settings()) == given


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (Settings(max_output_tokens=0), "`max_output_tokens` must be a number from 1, not 0"),
        (Settings(temperature=-0.1), "`temperature` must be a number from 0, not -0.1"),
        (Settings(temperature=math.nan), "`temperature` must be a number from 0, not nan"),
        (Settings(temperature=math.inf), "`temperature` must be a number from 0, not inf"),
        (Settings(top_p=1.5), "`top_p` must be a number from 0 to 1, not 1.5"),
        (Settings(seed=-1), "`seed` must be a number from 0 to 2,147,483,647, not -1"),
        (Settings(seed=2**40), "`seed` must be a number from 0 to 2,147,483,647, not 1099511627776"),
        (Settings(max_output_tokens=10**13), "`max_output_tokens` must be a number from 1, not 10000000000000"),
        (Settings(temperature="hot"), r"Expected `float \| null`, got `str` - at `\$.temperature`"),  # pyright: ignore[reportArgumentType]
        (Settings(seed=True), r"`\$.seed`"),
        (Settings(stop="END"), r"`\$.stop`"),  # pyright: ignore[reportArgumentType]
        (Settings(reasoning_effort="huge"), r"`\$.reasoning_effort`"),  # pyright: ignore[reportArgumentType]
        ({"temperature": 1}, r"must be `Settings\(temperature=...\)`, not"),
    ],
)
def test_settings_that_cannot_be_raise_for_the_agent_and_for_a_run(lab: Lab, settings: Settings, problem: str) -> None:
    with pytest.raises(CallerError, match=problem):
        agent_at(lab, settings=settings)
    with pytest.raises(CallerError, match=problem) as caught:
        agent_at(lab).run_sync("go", settings=settings)
    assert "of the run" in str(caught.value) and not lab.requests


def test_ctrl_c_out_of_run_sync_carries_the_text_and_the_bill(lab: Lab) -> None:
    """A KeyboardInterrupt as before, for programs that wait for one; with `result`."""

    def interrupt_at_text(event: WatcherEvent) -> None:
        if isinstance(event, FrameSeen) and "answer begins" in repr(event):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught:
        agent_at(lab, "stalls").run_sync("go", watch=interrupt_at_text)
    assert isinstance(caught.value, RunInterrupted)
    result = caught.value.result
    assert result.stop_reason == "cancelled" and "The answer begins" in result.text
    assert (result.requests, len(result.ledger)) == (1, 1)
    assert "1 request made, cost unknown" in str(caught.value)


STALLING = """
import signal
from turnwise import Agent, Model
from turnwise.running.watcher_events import FrameSeen
from turnwise.lab import Lab
from turnwise.lab.script import parse_script

STALLS = 'title = "stalls"\\n[[steps]]\\ntext = "The answer begins here."\\nfault = { kind = "stall", at = "text" }\\n'
lab = Lab([parse_script(STALLS, name="stalls")])

def interrupt(event):
    if isinstance(event, FrameSeen) and "answer begins" in repr(event):
        signal.raise_signal(signal.SIGINT)

agent = Agent(Model("openai_chat:stalls", base_url="http://127.0.0.1:9/v1", transport=lab.transport()))
agent.run_sync("go", watch=interrupt)
"""


def test_an_uncaught_ctrl_c_is_one_traceback_and_exit_code_130() -> None:
    """Issue 15: 45 lines in three chained tracebacks, and exit code 1: Python gives 130 to KeyboardInterrupt itself only."""
    ran = subprocess.run([sys.executable, "-c", STALLING], capture_output=True, text=True, timeout=HANG_S, check=False)
    assert ran.returncode == 130
    lines = ran.stderr.splitlines()
    assert ran.stderr.count("Traceback") == 1 and len(lines) < 12
    assert lines[-1] == "turnwise.agent.results.RunInterrupted: 1 request made, cost unknown"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("base_url", 'Give `Model("...", base_url=...)`'),
        ("approver", 'Give `safety={"approver": ...}`'),
        ("prices", 'Give `observation={"prices": ...}`'),
        ("recover", 'Give `recovery={"recover": ...}`'),
        ("max_steps", "Give `limits=MaxSteps(...)`"),
        ("agents", "`tools=[Subagents({"),
        ("max_depth", "`Subagents({...}, max_depth=...)`"),
        ("description", 'agent.as_tool("name", "what it is for")'),
    ],
)
def test_a_name_from_before_the_groups_raises_and_names_its_new_place(lab: Lab, name: str, words: str) -> None:
    """Proves: a program of the day before is told what to write, by the agent and by a run. Nothing is sent."""
    with pytest.raises(UnknownOption) as caught:
        Agent("openai_chat:answers", **{name: None})  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert words in str(caught.value)
    with pytest.raises(UnknownOption) as caught:
        agent_at(lab).run_sync("go", **{name: None})  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert words in str(caught.value) and not lab.requests


def balance(account: str) -> str:
    """The balance of an account."""
    return "3"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("baseurl", 'Did you mean `Model("...", base_url=...)`?'),
        ("api_base", 'Give `Model("...", base_url=...)`'),
        ("instruction", "Did you mean `instructions`?"),
        ("timeout", 'recovery={"deadlines": Deadlines(...)}'),
        ("tool_s", "Deadlines(tool_s=...)"),
        ("max_tokens", "settings=Settings(max_output_tokens=...)"),
        ("temperature", "settings=Settings(temperature=...)"),
        ("max_requests", "limits=MaxRequests(...)"),
        ("max_time", "limits=MaxWallTime(...)"),
        ("xyz", "The options are: deps_type, instructions"),
    ],
)
def test_an_option_that_an_agent_does_not_have_names_where_it_goes(lab: Lab, name: str, words: str) -> None:
    """Issue 15: a bare TypeError. A run says the same of names that other libraries have."""
    with pytest.raises(UnknownOption) as caught:
        agent_at(lab, **{name: 1})  # pyright: ignore[reportArgumentType]
    assert f"`{name}` is no option of `Agent`" in str(caught.value) and words in str(caught.value)
    if name in ("timeout", "max_tokens", "temperature"):
        with pytest.raises(UnknownOption, match=re.escape(words)):
            agent_at(lab).run_sync("go", **{name: 1})  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"recover": "yes"}, 'must be "continue", "split" or "off", not \'yes\''),
        ({"room": "small"}, '"compact", "budget" or "off"'),
        ({"script": "on"}, '"auto", True or False'),
        ({"limits": 3}, "`MaxRequests(3) | MaxTokens(20_000)`"),
        ({"tools": balance}, "`tools=[balance]`"),
        ({"tools": "balance"}, '`tools=["..."]`'),
        ({"fallbacks": "gpt-5"}, '`fallbacks=["..."]`'),
        ({"allowed": "read"}, '`allowed=["..."]`'),
        ({"allowed": ["reed"]}, "must hold"),
        ({"journal": "x.db"}, "`Journal(PATH)`"),
        ({"folder": "/nope/nowhere"}, "there is no such folder"),
        ({"deadlines": 30}, "`Deadlines(total_s=...)`"),
        ({"retry": 3}, "`RetryPolicy(attempts=...)`"),
        ({"limits": MaxSteps("3")}, "give a number from 1 to 10,000"),  # pyright: ignore[reportArgumentType]
        ({"limits": MaxSteps(0)}, "give a number from 1 to 10,000"),
        ({"limits": MaxSteps(10**9) | MaxRequests(3)}, "give a number from 1 to 10,000"),
        ({"max_subagents": -1}, "must be a whole number from 0, not -1"),
        ({"max_subagent_requests": 10**13}, "must be a whole number from 0, not 10000000000000"),
        ({"limits": MaxWallTime(math.inf)}, "give a number more than 0"),
        ({"limits": MaxRequests(3) | MaxWallTime(math.nan)}, "give a number more than 0"),
        ({"limits": MaxToolCalls(0) & MaxTokens(9)}, "holds `MaxToolCalls(calls=0)`: give a number from 1"),
    ],
)
def test_a_value_of_the_wrong_kind_raises_with_the_fix(lab: Lab, options: dict[str, object], words: str) -> None:
    """Issue 15: some raised in words of ours, some were accepted. For a run as for the agent, and nothing is sent."""
    with pytest.raises(CallerError) as caught:
        agent_at(lab, **options)  # pyright: ignore[reportArgumentType]
    assert words in str(caught.value) and str(caught.value).startswith(f"`{next(iter(options))}` ")
    with pytest.raises(CallerError, match="of the run"):
        agent_at(lab).run_sync("go", **grouped(options))  # pyright: ignore[reportArgumentType]
    assert not lab.requests


def as_python(row: OptionRow, value: float) -> dict[str, object]:
    """How Python says this value of the option."""
    option = row.option
    if option.limit is not None:
        return {"limits": option.limit(value)}  # pyright: ignore[reportArgumentType]
    if option.setting:
        return {"settings": Settings(**{option.setting: value})}  # pyright: ignore[reportArgumentType]
    if row.name == "context_window":
        return {"model_limits": ModelLimits(context_window_tokens=value)}  # pyright: ignore[reportArgumentType]
    return {row.name: value}


# The attempts of a RetryPolicy are the caller's own: docs/options.md says so.
RANGED = [row for row in rows() if row.bounds is not None and row.name != "retries"]


@pytest.mark.parametrize("row", RANGED, ids=lambda row: row.name)
def test_python_has_the_ranges_of_the_table(lab: Lab, row: OptionRow) -> None:
    """Proves: what docs/options.md says of each option, for every row with a range. `max_steps=10**9`, `max_subagents=-1` and
    `seed=2**40` were taken."""
    bounds = row.bounds
    assert bounds is not None
    least, most = bounds.ge if bounds.gt is None else bounds.gt + 1, bounds.le
    wrong = [value for value in (bounds.gt, None if bounds.ge is None else bounds.ge - 1) if value is not None]
    for value in (*wrong, *([] if most is None else [most + 1])):
        with pytest.raises(CallerError):
            agent_at(lab, **as_python(row, value))  # pyright: ignore[reportArgumentType]
    for value in (least, *([] if most is None else [most])):
        agent_at(lab, **as_python(row, value))  # pyright: ignore[reportArgumentType]


def test_a_prompt_of_dicts_raises_and_names_the_history(lab: Lab) -> None:
    """Issue 15: `Object missing required field` for messages as providers write them."""
    with pytest.raises(CallerError, match=r"the prompt must be a text.*`history=`, and `messages_from"):
        agent_at(lab).run_sync([{"role": "user", "content": "go"}])  # pyright: ignore[reportArgumentType]


def test_a_limit_of_cost_takes_what_says_the_amount_exactly() -> None:
    assert MaxCost(1) == MaxCost(Decimal(1)) and MaxCost("0.50") == MaxCost(Decimal("0.50"))  # pyright: ignore[reportArgumentType]
    for given, words in (
        (0.1, 'give `MaxCost\\("0.1"\\)`'),
        ("much", "a Decimal, an int"),
        (True, "a Decimal, an int"),
    ):
        with pytest.raises(CallerError, match=words):
            MaxCost(given)  # pyright: ignore[reportArgumentType]


def test_a_missing_key_speaks_of_pythons_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(MissingKey) as caught:
        Agent("openai:gpt-5").run_sync("Go.")
    assert str(caught.value) == (
        '`openai` wants a key: set `OPENAI_API_KEY`, or give `Model("...", api_key=...)`, or the name of a variable, '
        '`Model("...", api_key_env=...)`'
    )
    with pytest.raises(CallerError) as caught:
        Agent("openai_chat:m")
    assert str(caught.value) == '`openai_chat` has no address of its own: give `Model("...", base_url=...)`'


def test_a_result_shows_itself_in_a_notebook(lab: Lab) -> None:
    shown = agent_at(lab).run_sync("go")._repr_markdown_()
    assert shown == "The **answer**.\n\n<small>answered · 1 step · 1 request · cost unknown</small>"


def test_repairs_are_folded_away_and_nothing_of_a_stranger_is_taken_for_html(lab: Lab) -> None:
    result: RunResult = msgspec.structs.replace(
        agent_at(lab).run_sync("go"),
        shown_text="a \u202e b",
        complete=False,
        why_incomplete="<b>cut</b>",
        repairs=(Repair("joined", "call <x>", "</details><script>1</script>"), Repair("again", "answer", "twice")),
    )
    shown = result._repr_markdown_()
    assert "\u202e" not in shown and "<script>" not in shown and "<b>" not in shown
    assert "<details><summary>2 repairs</summary><ul><li>call &lt;x&gt;:" in shown
    assert "not complete · &lt;b&gt;cut" in shown


def test_a_result_is_one_short_line_where_it_is_printed(lab: Lab) -> None:
    """Issue 15: 2,294 characters for an answer of one line. What is out of the ordinary is named, too."""
    result = agent_at(lab).run_sync("go")
    assert repr(result) == (
        "RunResult(shown_text='The **answer**.', stop_reason='answered', complete=True, requests=1, "
        "cost=Cost(usd=unknown, requests=1, unknown=1))"
    )
    long = replace(result, shown_text="word " * 1000, complete=False, why_incomplete="it was cut")
    assert len(repr(long)) < 300 and "why_incomplete='it was cut'" in repr(long)
