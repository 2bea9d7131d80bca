"""The five incidents turnwise comes from: each with a naive loop, then with turnwise, against the same scripted provider."""

import contextlib
from collections.abc import Awaitable, Callable, Generator, Sequence
from pathlib import Path

import aiohttp
import msgspec

from turnwise.agent.agent import Agent
from turnwise.agent.formatting import many
from turnwise.agent.results import RunResult
from turnwise.base.private_folders import private_folder
from turnwise.lab import Lab, load_scripts
from turnwise.lab.demo.naive import (
    Client,
    close_what_was_cut,
    follow_up_per_call,
    hide_a_request,
    new_call_at_every_id,
    stop_at_the_cap,
)
from turnwise.rules.limits import MaxSteps
from turnwise.tools.workspace import workspace_tools
from turnwise.vocab import StopReason, Usage, calls_of

SCRIPTS = Path(__file__).parent / "scripts"
FILES = {"notes.txt": "status: draft\n", "apples.txt": "apples: 12\n", "pears.txt": "pears: 30\n"}

NaiveLoop = Callable[[Client, Path, str], Awaitable[str]]
CAP = 8
REPORT_BYTES = 40_000


class IncidentReport(msgspec.Struct, frozen=True):
    """What turnwise did, from the facts at hand, and what of it is not as promised."""

    said: str
    wrong: str | None


IncidentTeller = Callable[[RunResult, Path], IncidentReport]


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """`requests` is what the turn must take by the lab's own count; `tools` are those that the naive loop offers too."""

    title: str
    prompt: str
    family: str
    model: str
    naive: NaiveLoop
    requests: int
    tell: IncidentTeller
    tools: tuple[str, ...]
    max_steps: int = 20


class IncidentOutcome(msgspec.Struct, frozen=True, kw_only=True):
    said: str
    requests: int
    tokens: int
    wrong: str | None = None


class IncidentRow(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    naive: IncidentOutcome
    turnwise: IncidentOutcome


def _one_read(result: RunResult, folder: Path) -> IncidentReport:
    calls = [call for message in result.new_messages for call in calls_of(message)]
    said = f"{many(len(calls), 'call')} seen, with name and whole arguments; the file was read: '{result.text}'"
    return IncidentReport(said, None if len(calls) == 1 and result.complete else "it should be one call and an answer")


def _both_results(result: RunResult, folder: Path) -> IncidentReport:
    right = result.text == "12 apples and 30 pears: all there."
    return IncidentReport(
        f"one follow-up with both results: '{result.text}'", None if right else "the answer lacks a result"
    )


def _whole_file(result: RunResult, folder: Path) -> IncidentReport:
    path = folder / "report.txt"
    size = path.stat().st_size if path.is_file() else 0
    calls = [call for message in result.new_messages for call in calls_of(message)]
    again = result.recovery_usage
    said = (
        f"continued from the cut ({again.input_tokens:,} tokens in, {again.output_tokens:,} out for that), joined, "
        f"run {'once' if len(calls) == 1 else many(len(calls), 'time')}: the file has {size:,} of {REPORT_BYTES:,} bytes"
    )
    right = size == REPORT_BYTES and len(calls) == 1 and result.complete
    return IncidentReport(said, None if right else "the file is not whole, or it took more than one call")


def _synthesis(result: RunResult, folder: Path) -> IncidentReport:
    said = f"step {result.steps} of {CAP} had to answer ({result.stop_reason}, complete: {result.complete}): '{result.text}'"
    right = result.stop_reason is StopReason.STEP_LIMIT and not result.complete and result.text.strip()
    return IncidentReport(said, None if right else "it should end by its step limit with a text")


def _edited(result: RunResult, folder: Path) -> IncidentReport:
    text = (folder / "notes.txt").read_text().strip()
    said = f"{many(result.steps, 'step')}, {many(result.requests, 'request')} reported; notes.txt says '{text}'"
    return IncidentReport(said, None if text == "status: done" else "the file was not edited")


INCIDENTS = (
    Incident(
        title="An id in every chunk (Koog)",
        prompt="What does notes.txt say?",
        family="openai_chat",
        model="id-in-every-chunk",
        naive=new_call_at_every_id,
        requests=2,
        tell=_one_read,
        tools=("read",),
    ),
    Incident(
        title="Parallel calls in a streamed Responses answer (deep-chat)",
        prompt="How many apples and pears are there?",
        family="openai_responses",
        model="demo-parallel",
        naive=follow_up_per_call,
        requests=2,
        tell=_both_results,
        tools=("read",),
    ),
    Incident(
        title="A call cut by the output limit (opencode)",
        prompt="Write the report into report.txt.",
        family="openai_chat",
        model="demo-cut",
        naive=close_what_was_cut,
        requests=3,
        tell=_whole_file,
        tools=("write",),
    ),
    Incident(
        title="A turn that runs into its step cap (gitmost)",
        prompt="Find out who wrote this.",
        family="openai_chat",
        model="research",
        naive=stop_at_the_cap,
        requests=8,
        tell=_synthesis,
        tools=("search",),
        max_steps=CAP,
    ),
    Incident(
        title="Requests counted step by step (Chutes)",
        prompt="Set the status in notes.txt to done.",
        family="openai_chat",
        model="read-edit-answer",
        naive=hide_a_request,
        requests=3,
        tell=_edited,
        tools=("read", "edit"),
    ),
)


async def play(incident: Incident) -> IncidentRow:
    """Both loops, each in a folder of its own."""
    async with Lab(load_scripts(SCRIPTS).values()) as lab:
        with new_folder() as name:
            naively = await _play_naive(incident, lab=lab, folder=Path(name))
        lab.reset()
        with new_folder() as name:
            well = await _play_turnwise(incident, lab=lab, folder=Path(name))
    return IncidentRow(title=incident.title, naive=naively, turnwise=well)


async def _play_naive(incident: Incident, *, lab: Lab, folder: Path) -> IncidentOutcome:
    async with aiohttp.ClientSession() as session:
        said = await incident.naive(Client(session, base_url=f"{lab.url}/v1"), folder, incident.prompt)
    return IncidentOutcome(said=said, requests=lab.count(), tokens=tokens_received(lab))


async def _play_turnwise(incident: Incident, *, lab: Lab, folder: Path) -> IncidentOutcome:
    agent = agent_for(
        f"{incident.family}:{incident.model}",
        lab=lab,
        folder=folder,
        tools=incident.tools,
        max_steps=incident.max_steps,
    )
    result = await agent.run(incident.prompt)
    said, wrong = msgspec.structs.astuple(incident.tell(result, folder))
    if wrong is None and not result.requests == lab.count() == incident.requests:
        wrong = f"{result.requests} requests reported, {lab.count()} received, {incident.requests} promised"
    tokens = result.usage.input_tokens + result.usage.output_tokens
    if wrong is None and tokens != tokens_received(lab):
        wrong = f"{tokens} tokens reported, {tokens_received(lab)} sent"
    return IncidentOutcome(said=said, requests=lab.count(), tokens=tokens_received(lab), wrong=wrong)


def agent_for(
    model: str, *, lab: Lab, folder: Path, tools: Sequence[str] = ("read", "edit"), max_steps: int = 20
) -> Agent:
    offered = [tool for tool in workspace_tools(folder) if tool.name in tools]
    base_url = lab.url if model.startswith("anthropic_messages:") else f"{lab.url}/v1"  # its own paths begin with /v1
    return Agent(model, tools=offered, limits=MaxSteps(max_steps), endpoint={"base_url": base_url})


@contextlib.contextmanager
def new_folder() -> Generator[str]:
    """With the incidents' files, for as long as it is used."""
    with private_folder(kind="demo") as private:
        folder = private / "work"
        folder.mkdir()
        for name, text in FILES.items():
            (folder / name).write_text(text)
        yield str(folder)


def tokens_received(lab: Lab) -> int:
    total = sum((one.usage for one in lab.requests if one.usage is not None), Usage())
    return total.input_tokens + total.output_tokens
