"""The five incidents turnwise comes from: each with a naive loop, then with turnwise, against the same scripted provider."""

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from turnwise.agent.agent import Agent
from turnwise.agent.agent_options import Model
from turnwise.agent.formatting import many
from turnwise.agent.results import RunResult
from turnwise.base.private_folders import private_folder
from turnwise.lab import Lab, load_scripts
from turnwise.lab.families import FAMILIES, openai_chat, openai_responses
from turnwise.lab.families.family import LabFamily
from turnwise.lab.replies import tokens
from turnwise.rules.limits import MaxSteps
from turnwise.tools.workspace import workspace_tools
from turnwise.vocab import StopReason, Usage, calls_of

# Five deliberately naive loops, each with the mistake of one incident. They stand here to be measured, not to be used.


Json = dict[str, Any]


def text_tool(name: str, description: str, *fields: str) -> Json:
    """A tool whose arguments are texts, all of them needed."""
    properties = {field: {"type": "string"} for field in fields}
    parameters = {"type": "object", "properties": properties, "required": list(fields)}
    return {"name": name, "description": description, "parameters": parameters}


READ_TOOL = text_tool("read", "Read a file.", "path")
WRITE_TOOL = text_tool("write", "Write a file.", "path", "content")
EDIT_TOOL = text_tool("edit", "Edit a file.", "path", "old", "new")
SEARCH_TOOL = text_tool("search", "Search the web.", "pattern")


class Client:
    """Posts to the lab and reads server-sent events the quick way."""

    def __init__(self, session: aiohttp.ClientSession, *, base_url: str) -> None:
        self._session = session
        self._base_url = base_url

    async def stream(self, path: str, body: Json) -> AsyncIterator[Json]:
        async with self._session.post(f"{self._base_url}{path}", json={**body, "stream": True}) as response:
            if response.status != 200:
                raise RuntimeError(f"{response.status} {(await response.json())['error']['message']}")
            async for line in response.content:
                if line.startswith(b"data: {"):
                    yield json.loads(line[6:])

    async def chat(self, body: Json) -> Json:
        """A Chat Completions body, not streamed: the message of choice 0 with its `finish_reason`."""
        async with self._session.post(f"{self._base_url}/chat/completions", json=body) as response:
            answer = await response.json()
            if response.status != 200:
                raise RuntimeError(f"{response.status} {answer['error']['message']}")
            choice = answer["choices"][0]
            return {**choice["message"], "finish_reason": choice["finish_reason"]}


def chat_body(model: str, messages: list[Json], *tools: Json) -> Json:
    return {
        "model": model,
        "messages": messages,
        "tools": [{"type": "function", "function": tool} for tool in tools],
    }


def run_tool(folder: Path, name: str, arguments: Json) -> str:
    path = folder / str(arguments.get("path", ""))
    match name:
        case "read":
            return path.read_text() if path.is_file() else f"no such file: {path.name!r}"
        case "write":
            path.write_text(str(arguments.get("content", "")))
            return "ok"
        case "edit":
            path.write_text(path.read_text().replace(str(arguments["old"]), str(arguments["new"])))
            return "ok"
        case _:
            return "nothing found"


def answered(message: Json, folder: Path) -> list[Json]:
    """The message with its calls, and a result for each."""
    found: list[Json] = [{"role": "assistant", "content": message["content"], "tool_calls": message["tool_calls"]}]
    for call in message["tool_calls"]:
        output = run_tool(folder, call["function"]["name"], json.loads(call["function"]["arguments"]))
        found.append({"role": "tool", "tool_call_id": call["id"], "content": output})
    return found


async def new_call_at_every_id(client: Client, folder: Path, prompt: str) -> str:
    """Takes 'the id is not null' for 'a new call begins' (Koog's StreamFrameFlowBuilder)."""
    messages: list[Json] = [{"role": "user", "content": prompt}]
    calls: list[Json] = []
    async for chunk in client.stream("/chat/completions", chat_body("id-in-every-chunk", messages, READ_TOOL)):
        choices: list[Json] = chunk.get("choices") or []
        for choice in choices:
            deltas: list[Json] = choice["delta"].get("tool_calls") or []
            for delta in deltas:
                function: Json = delta.get("function") or {}
                if delta.get("id") is not None:
                    calls.append({"id": delta["id"], "name": function.get("name"), "arguments": ""})
                calls[-1]["arguments"] += function.get("arguments") or ""
    whole = 0
    for call in calls:
        try:
            json.loads(call["arguments"])
            whole += bool(call["name"])
        except ValueError:
            pass
    return f"{len(calls)} calls seen, {whole} of them whole; the file was never read"


async def follow_up_per_call(client: Client, folder: Path, prompt: str) -> str:
    """Starts a request at each `output_item.done`, with that call's result only (deep-chat)."""
    tools = [{"type": "function", **READ_TOOL}]
    question: Json = {"role": "user", "content": prompt}
    answers: list[str] = []

    async def ask(items: list[Json]) -> None:
        body = {"model": "demo-parallel", "input": [question, *items], "tools": tools}
        async for event in client.stream("/responses", body):
            if event["type"] == "response.output_text.done":
                answers.append(event["text"])
            if event["type"] == "response.output_item.done" and event["item"]["type"] == "function_call":
                item = event["item"]
                output = run_tool(folder, item["name"], json.loads(item["arguments"]))
                result = {"type": "function_call_output", "call_id": item["call_id"], "output": output}
                await ask([item, result])

    await ask([])
    return f"{len(answers)} answers, each from one result: '{answers[0]}'"


async def close_what_was_cut(client: Client, folder: Path, prompt: str) -> str:
    """Mends cut arguments by closing the string and the object, and runs them (lenient JSON parsers)."""
    messages: list[Json] = [{"role": "user", "content": prompt}]
    for _ in range(5):
        message = await client.chat(chat_body("demo-cut", messages, WRITE_TOOL))
        calls: list[Json] = message.get("tool_calls") or []
        if not calls:
            size = (folder / "report.txt").stat().st_size
            return f"'{message['content']}' The file has {size:,} of 40,000 bytes"
        for call in calls:
            arguments = call["function"]["arguments"]
            try:
                json.loads(arguments)
            except ValueError:
                call["function"]["arguments"] = arguments.rstrip("\\") + '"}'
        messages += answered(message, folder)
    return "no end after 5 steps"


async def stop_at_the_cap(client: Client, folder: Path, prompt: str) -> str:
    """Counts to 8 and returns what text there is (gitmost)."""
    messages: list[Json] = [{"role": "user", "content": prompt}]
    text = ""
    for _ in range(8):
        message = await client.chat(chat_body("research", messages, SEARCH_TOOL))
        if not message.get("tool_calls"):
            text = message["content"]
            break
        messages += answered(message, folder)
    return f"ended after 8 steps with the text '{text}'"


async def hide_a_request(client: Client, folder: Path, prompt: str) -> str:
    """Asks for a title on the side, and reports one prompt as one request (the Chutes bill)."""
    await client.chat({"model": "plain-answer", "messages": [{"role": "user", "content": f"A title for: {prompt}"}]})
    messages: list[Json] = [{"role": "user", "content": prompt}]
    while True:
        message = await client.chat(chat_body("read-edit-answer", messages, READ_TOOL, EDIT_TOOL))
        if not message.get("tool_calls"):
            return "the user sees 1 prompt; nobody counted the rest"
        messages += answered(message, folder)


SCRIPTS = Path(__file__).parent / "demo_scripts"
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
    family: LabFamily
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
    tool_tokens: int  # of them, what describes the tools
    wrong: str | None = None


class IncidentRow(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    naive: IncidentOutcome
    turnwise: IncidentOutcome

    @property
    def why_more(self) -> str:
        """Why turnwise took more tokens; empty where it did not."""
        naive, ours = self.naive, self.turnwise
        if (more := ours.tokens - naive.tokens) <= 0:
            return ""
        again = "" if ours.requests <= naive.requests else ", and a request more was needed for an answer"
        return (
            f"{more:,} tokens more: what describes its tools goes with each request and takes {ours.tool_tokens:,} "
            f"(the naive loop's short texts: {naive.tool_tokens:,}){again}"
        )


def _one_read(result: RunResult, folder: Path) -> IncidentReport:
    calls = [call for message in result.new_messages for call in calls_of(message)]
    said = f"{many(len(calls), 'call')} seen, with name and whole arguments; the file was read: '{result.shown_text}'"
    return IncidentReport(said, None if len(calls) == 1 and result.complete else "it should be one call and an answer")


def _both_results(result: RunResult, folder: Path) -> IncidentReport:
    right = result.shown_text == "12 apples and 30 pears: all there."
    return IncidentReport(
        f"one follow-up with both results: '{result.shown_text}'", None if right else "the answer lacks a result"
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
    how = f"{result.stop_reason}, complete: {result.complete}"
    said = f"step {result.steps} of {CAP} had to answer ({how}): '{result.shown_text}'"
    right = result.stop_reason is StopReason.STEP_LIMIT and not result.complete and result.shown_text.strip()
    return IncidentReport(said, None if right else "it should end by its step limit with a text")


def _edited(result: RunResult, folder: Path) -> IncidentReport:
    text = (folder / "notes.txt").read_text().strip()
    said = f"{many(result.steps, 'step')}, {many(result.requests, 'request')} reported; notes.txt says '{text}'"
    return IncidentReport(said, None if text == "status: done" else "the file was not edited")


INCIDENTS = (
    Incident(
        title="An id in every chunk (Koog)",
        prompt="What does notes.txt say?",
        family=openai_chat.FAMILY,
        model="id-in-every-chunk",
        naive=new_call_at_every_id,
        requests=2,
        tell=_one_read,
        tools=("read",),
    ),
    Incident(
        title="Parallel calls in a streamed Responses answer (deep-chat)",
        prompt="How many apples and pears are there?",
        family=openai_responses.FAMILY,
        model="demo-parallel",
        naive=follow_up_per_call,
        requests=2,
        tell=_both_results,
        tools=("read",),
    ),
    Incident(
        title="A call cut by the output limit (opencode)",
        prompt="Write the report into report.txt.",
        family=openai_chat.FAMILY,
        model="demo-cut",
        naive=close_what_was_cut,
        requests=3,
        tell=_whole_file,
        tools=("write",),
    ),
    Incident(
        title="A turn that runs into its step cap (gitmost)",
        prompt="Find out who wrote this.",
        family=openai_chat.FAMILY,
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
        family=openai_chat.FAMILY,
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
    return IncidentOutcome(
        said=said, requests=lab.count(), tokens=tokens_received(lab), tool_tokens=tool_tokens_received(lab)
    )


async def _play_turnwise(incident: Incident, *, lab: Lab, folder: Path) -> IncidentOutcome:
    agent = agent_for(
        f"{incident.family.name}:{incident.model}",
        lab=lab,
        folder=folder,
        tools=incident.tools,
        max_steps=incident.max_steps,
    )
    result = await agent.run(incident.prompt)
    said, wrong = msgspec.structs.astuple(incident.tell(result, folder))
    if wrong is None and not result.requests == lab.count() == incident.requests:
        wrong = f"{result.requests} requests reported, {lab.count()} received, {incident.requests} promised"
    reported = result.usage.input_tokens + result.usage.output_tokens
    if wrong is None and reported != tokens_received(lab):
        wrong = f"{reported} tokens reported, {tokens_received(lab)} sent"
    return IncidentOutcome(
        said=said,
        requests=lab.count(),
        tokens=tokens_received(lab),
        tool_tokens=tool_tokens_received(lab),
        wrong=wrong,
    )


def agent_for(
    model: str, *, lab: Lab, folder: Path, tools: Sequence[str] = ("read", "edit"), max_steps: int = 20
) -> Agent:
    offered = [tool for tool in workspace_tools(folder) if tool.name in tools]
    base_url = lab.url + FAMILIES[model.partition(":")[0]].base_path
    return Agent(Model(model, base_url=base_url), tools=offered, limits=MaxSteps(max_steps))


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


def tool_tokens_received(lab: Lab) -> int:
    """How many of them describe tools, as the lab counts."""
    bodies = [json.loads(one.body) for one in lab.requests]
    return sum(tokens(len(msgspec.json.encode(body.get("tools", [])))) for body in bodies)
