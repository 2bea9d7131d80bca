"""The lookout (scripts/lookout.py): nothing new passes it unseen, and what its decisions say is what the decoders do."""

import copy
import importlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import anthropic
import msgspec
import pytest

from relay.asking_relay import FAMILIES, PROFILES, body_of, plain, refusal, send, told_of
from turnwise.assembly.response_reading import read_body
from turnwise.relay.terms import RouteTerms
from turnwise.vocab import File, FinishReason, Message, Request, Response, Text, calls_of
from turnwise.wire.family import family as family_named
from turnwise.wire.model_lists import read_model_list
from whole_streams import read_stream

ROOT = Path(__file__).resolve().parents[1]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lookout", ROOT / "scripts" / "lookout.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["lookout"] = module
    spec.loader.exec_module(module)
    return module


lookout: Any = load()
DECISIONS = lookout.read_decisions()

# --- an SDK that we wrote, offline

SDK = {
    "openai-9.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: openai\nVersion: 9.0\n",
    "openai/__init__.py": "",
    "openai/types/__init__.py": """
        from pydantic import BaseModel
        class Model(BaseModel):
            id: str
    """,
    "openai/types/chat/__init__.py": """
        from typing import Literal, Optional, Union
        from pydantic import BaseModel
        class Choice(BaseModel):
            finish_reason: Literal["stop", "length"]
        class ChatCompletion(BaseModel):
            id: str
            choices: list[Choice]
        class ChatCompletionChunk(BaseModel):
            id: str
    """,
    "openai/types/chat/completion_create_params.py": """
        from __future__ import annotations
        from typing import Literal
        from typing_extensions import Required, TypedDict
        class Message(TypedDict, total=False):
            role: Required[Literal["user", "assistant"]]
        class CompletionCreateParamsBase(TypedDict, total=False):
            messages: Required[list[Message]]
        class CompletionCreateParamsNonStreaming(CompletionCreateParamsBase, total=False):
            stream: bool
        class CompletionCreateParamsStreaming(CompletionCreateParamsBase):
            stream: Required[bool]
    """,
    "openai/types/responses/__init__.py": """
        from typing import Annotated, Literal, Union
        from pydantic import BaseModel, Field
        class Refusal(BaseModel):
            type: Literal["refusal"]
        class Text(BaseModel):
            type: Literal["output_text"]
            text: str
        class Output(BaseModel):
            type: Literal["message"]
            content: list[Union[Text, Refusal]]
        class Response(BaseModel):
            id: str
            output: list[Output]
        class Delta(BaseModel):
            type: Literal["response.output_text.delta"]
            delta: str
        ResponseStreamEvent = Annotated[Union[Delta], Field(discriminator="type")]
    """,
    "openai/types/responses/response_create_params.py": """
        from typing_extensions import TypedDict
        class ResponseCreateParamsNonStreaming(TypedDict, total=False):
            input: str
        class ResponseCreateParamsStreaming(TypedDict, total=False):
            input: str
    """,
}

PLANTED = {
    "a field of an answer": ("chat/__", "choices: list[Choice]", "choices: list[Choice]; novel: int", ".novel"),
    "a field below": ("chat/__", "finish_reason: L", "novel: str; finish_reason: L", "chat.answer.Choice.novel"),
    "a literal of an answer": ("chat/__", '"length"', '"length", "novel"', "Choice.finish_reason=novel"),
    "a field of a chunk": ("chat/__", "Chunk(BaseModel):", "Chunk(BaseModel):\n    novel: int", "Chunk.novel"),
    "a field of a request": ("chat/completion", "stream: bool", "stream: bool; novel: int", "CompletionCreate.novel"),
    "a literal of a request": ("chat/completion", '"assistant"', '"assistant", "novel"', "request.Message.role=novel"),
    "a kind of item": ("responses/__", "list[Output]", "list[Union[Output, Novel]]", "Novel.type=novel_item"),
    "a kind of content": ("responses/__", "Text, Refusal]", "Text, Refusal, Novel]", "Novel.type=novel_item"),
    "an event": ("responses/__", "Union[Delta]", "Union[Delta, Novel]", "responses.answer.Novel.type=novel_item"),
    "a field of a model": ("types/__", "id: str", "id: str; novel: int", "chat.models.Model.novel"),
    "a type that is gone": (
        "responses/__",
        "class Response(",
        "class Resp(",
        "responses.answer.openai.types.responses",
    ),
    "a word that no test feeds": ("chat/__", '"length"', '"length", "eh"', "Choice.finish_reason=eh"),
}
NOVEL = 'class Novel(BaseModel):\n    type: Literal["novel_item"]\n    unheard: int\nclass Output'


def write_sdk(folder: Path, *, place: str = "", old: str = "", new: str = "") -> Path:
    for name, text in SDK.items():
        lines = [line[8:] if line.startswith(" " * 8) else line for line in text.splitlines()]
        text = "\n".join(lines) + "\n"
        if place and name.startswith(f"openai/{'' if place.startswith('types') else 'types/'}{place}"):
            assert old in text
            text = text.replace(old, new).replace("class Output", NOVEL, 1)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict[str, Any]]:
    code = lookout.main([*map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out or "{}")


@pytest.mark.costly
def test_what_is_read_and_exercised_is_no_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = run(capsys, "--sdks", write_sdk(tmp_path))
    assert (code, report["differences"], report["versions"]) == (0, {}, {"openai": "9.0"})
    assert report["read"] > 10


@pytest.mark.parametrize("kind", PLANTED)
def test_whatever_is_planted_is_found(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each kind of difference, alone, and named by its place; what stands below a kind that is new is not named, too."""
    place, old, new, found = PLANTED[kind]
    code, report = run(capsys, "--sdks", write_sdk(tmp_path, place=place, old=old, new=new))
    [(name, _)] = report["differences"].items()
    assert code == 1
    assert found in name


def test_a_decision_ends_a_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And one that decides nothing is told, where the versions are those that it was made for."""
    place, old, new, _ = PLANTED["a kind of item"]
    folder = write_sdk(tmp_path / "sdk", place=place, old=old, new=new)
    file = tmp_path / "decisions.toml"
    about = '[versions]\nopenai = "9.0"\n[before]\n[[decision]]\nhappens = "x"\nnames = "%s"\n'
    file.write_text(about % "responses.answer.{Novel,Other}.type=novel_*")
    assert run(capsys, "--sdks", folder, "--decisions", file)[0] == 0
    file.write_text(about % "responses.answer.Novel.type=novel_* chat.answer.Other.*")
    code, report = run(capsys, "--sdks", folder, "--decisions", file)
    assert (code, report["differences"]) == (1, {"chat.answer.Other.*": "decides nothing"})


@pytest.mark.costly
def test_it_shows_what_came_since(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place, old, new, found = PLANTED["an event"]
    older, newer = write_sdk(tmp_path / "a"), write_sdk(tmp_path / "b", place=place, old=old, new=new)
    assert run(capsys, "--sdks", newer, "--since", older)[1]["shown"] == {found: "undecided"}
    assert lookout.main(["--sdks", str(newer), "--since", str(older)]) == 1
    assert capsys.readouterr().out.startswith(f"responses.answer\n  {found}: undecided\nopenai 9.0: ")


def test_each_way_to_fail_has_its_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        lookout.main(["--sdks", str(tmp_path / "none")])
    (write_sdk(tmp_path) / "openai" / "__init__.py").write_text("raise ImportError('torn')\n")
    assert lookout.main(["--sdks", str(tmp_path)]) == 3
    assert "torn" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="0"):
        lookout.main(["--help"])
    assert "exit codes: 0" in capsys.readouterr().out


@pytest.mark.costly
def test_nothing_in_the_sdks_of_these_tests_is_undecided() -> None:
    """Issue 41, 'Done when' 3, without a network: the SDKs that the tests have. A field planted where each side begins is found
    there as well."""
    graph = lookout.walk(Path(anthropic.__file__).parents[1], say=lookout.Say())
    words = {"read": lookout.read_words(), "exercised": lookout.exercised_words(decisions=DECISIONS)}
    found = lookout.judge(graph, decisions=DECISIONS, **words)
    assert found.differences == {}
    planted: set[str] = set()
    for side, roots in graph["roots"].items():
        kind = graph["types"][roots[0]]
        kind["fields"]["novel_field"] = {"literals": [], "types": []}
        planted.add(f"{side}.{lookout._plain(kind['name'])}.novel_field")
    assert planted <= set(lookout.judge(graph, decisions=DECISIONS, **words).differences)
    assert len(planted) == len(graph["roots"]) >= 11


# --- the decisions are true

BODIES: dict[str, dict[str, Any]] = {
    "openai_chat": {
        "id": "r",
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    },
    "openai_responses": {
        "id": "r",
        "model": "m",
        "status": "completed",
        "output": [
            {
                "type": "message",
                "id": "m_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "hi", "annotations": []}],
            }
        ],
        "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
    },
    "anthropic_messages": {
        "id": "r",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "hi"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 3, "output_tokens": 2},
    },
    "gemini": {
        "candidates": [{"content": {"role": "model", "parts": [{"text": "hi"}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5},
    },
}
USAGE = {"gemini": "usageMetadata"}


def content_of(family: str, body: dict[str, Any]) -> list[Any]:
    match family:
        case "openai_responses":
            return body["output"]
        case "anthropic_messages":
            return body["content"]
        case _:
            return body["candidates"][0]["content"]["parts"]


def merged(into: Any, more: Any) -> Any:
    if isinstance(into, dict) and isinstance(more, dict):
        return {**into, **{key: merged(into.get(key), value) for key, value in more.items()}}
    if isinstance(into, list) and isinstance(more, list) and len(into) == len(more):
        return [merged(one, other) for one, other in zip(into, more, strict=True)]
    return more


def has(value: Any, wanted: Any) -> bool:
    """Whether `wanted` stands in `value`: an object with what it has, and more."""
    if isinstance(wanted, dict) and isinstance(value, dict):
        return all(key in value and has(value[key], one) for key, one in wanted.items())
    if isinstance(wanted, list) and isinstance(value, list):
        return len(wanted) == len(value) and all(map(has, value, wanted))
    return value == wanted


def within(value: Any) -> Iterator[Any]:
    yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from within(one)


def whole(family: str, body: dict[str, Any]) -> Response:
    return read_body(json.dumps(body).encode(), family=family_named(family), profile=PROFILES[family])[0]


def streamed(family: str, body: dict[str, Any], *events: Any) -> Response:
    """The body as a stream, with further events before the last."""
    match family:
        case "openai_responses":
            items = [
                {"type": f"response.output_item.{step}", "output_index": i, "item": item}
                for i, item in enumerate(body["output"])
                for step in ("added", "done")
            ]
            ends = [{"type": "response.completed", "response": {**body, "output": []}}]
            found = [{"type": "response.created", "response": {"id": "r", "model": "m"}}, *items]
        case "anthropic_messages":
            found = [{"type": "message_start", "message": {**body, "content": []}}]
            for i, block in enumerate(body["content"]):
                found += [{"type": "content_block_start", "index": i, "content_block": block}]
                found += [{"type": "content_block_stop", "index": i}]
            ends = [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]
        case _:
            found, ends = [], [body]
    chunks = [f"data: {json.dumps(one)}\n\n".encode() for one in (*found, *events, *ends)]
    return read_stream(chunks, family=family_named(family), profile=PROFILES[family])


def bare(response: Response) -> Response:
    """Without the provider's own copy of its counts, and what was read in it for the price."""
    usage = response.usage
    if usage is not None:
        usage = msgspec.structs.replace(usage, provider="", terms=(), unread=())
    return msgspec.structs.replace(response, usage=usage)


def sent_again(family: str, response: Response) -> Any:
    request = Request(model="m", messages=(Message("user", (Text("hi"),)), response.message))
    return json.loads(family_named(family).encode_request(request, PROFILES[family]).body)


def check_answers(answers: list[Response], example: dict[str, Any], *, plain_answer: Response) -> None:
    family, said = example["family"], json.loads(example["json"])
    for answer in answers:
        match example["outcome"]:
            case "kept":
                assert any(has(one, said) for one in within(sent_again(family, answer)))
                assert answer.finish is FinishReason.TOOL_CALLS if calls_of(answer.message) else not answer.lost
            case "cited":
                raws = [
                    json.loads(one.raw) for part in answer.message.parts if type(part) is Text for one in part.citations
                ]
                assert raws and all(any(has(one, raw) for one in within(said)) for raw in raws)
            case "counted":
                assert answer.usage is not None and bare(answer) == bare(plain_answer)
                assert has(json.loads(answer.usage.provider), said[USAGE.get(family, "usage")])
            case "told":
                assert answer.repairs and bare(msgspec.structs.replace(answer, repairs=())) == bare(plain_answer)
            case "ignored":
                assert bare(answer) == bare(plain_answer)
            case "called":
                assert [call.arguments for call in calls_of(answer.message)] == [example["arguments"]]
            case "named":
                assert [part.name for part in answer.message.parts if type(part) is File] == ["a.png"]
            case "cut":
                assert answer.finish is FinishReason.CUT
                assert [one.kind for one in answer.repairs] == ["unknown_finish"]
            case "failed":
                assert answer.fault is not None and answer.fault.message == said["error"]["message"]
            case other:
                pytest.fail(f"no outcome of an answer: {other}")


@pytest.mark.parametrize(
    "example", [example for one in DECISIONS.all for example in one.examples], ids=lambda one: one["json"][:60]
)
def test_what_a_decision_says_is_what_happens(example: dict[str, Any]) -> None:
    """Each example, through the real decoders: as a body and, where it is content, as a stream."""
    family, said = example["family"], json.loads(example["json"])
    body = copy.deepcopy(BODIES.get(family, {}))
    plain_answer = whole(family, body)
    match example["place"]:
        case "part":
            content_of(family, body).append(said)
            is_text = said.get("type") in ("text", "message")  # these come in pieces
            answers = [whole(family, body), *([] if is_text else [streamed(family, body)])]
        case "answer":
            answers = [whole(family, merged(body, said))]
        case "event":
            plain_answer, answers = streamed(family, body), [streamed(family, body, said)]
        case "error":
            fault = family_named(family).decode_fault(example["status"], {}, example["json"].encode())
            assert (fault.kind, fault.message) == (example["outcome"], said["error"]["message"])
            return
        case "models":
            entry = {"id": "m", "name": "models/m"}
            lists = [json.dumps({"data": [one]}).encode() for one in (entry, {**entry, **said})]
            assert read_model_list(lists[0]) == read_model_list(lists[1])
            return
        case _:
            check_request(family, said, elsewhere=example["elsewhere"])
            return
    check_answers(answers, example, plain_answer=plain_answer)


def check_request(family: str, said: dict[str, Any], *, elsewhere: str) -> None:
    body = merged(plain(family), said)
    assert has(body_of(send(family, body, to=family, terms=RouteTerms(), one_client=True)), said)
    for target in FAMILIES:
        if target == family:
            continue
        if elsewhere == "refused":
            assert refusal(family, body, to=target, one_client=True)
        else:
            assert bool(told_of(send(family, body, to=target, one_client=True))) is (elsewhere == "told")


def test_each_decision_has_a_reason_and_an_example() -> None:
    """And there are few enough for a person to read them."""
    assert all(decision.examples and decision.happens.endswith(".") for decision in DECISIONS.all)
    assert len(DECISIONS.all) <= 60
