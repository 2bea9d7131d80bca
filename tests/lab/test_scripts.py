"""Scripts: read, refused with a reason, and stepped through by the body alone."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from flat_agents import flat_agent
from lab.asking import PATHS, ask, body_of, path_of
from turnwise.lab import Lab, Script, ScriptError, builtin_scripts, load_scripts, numbered_lines, parse_script
from turnwise.lab.replies import example_of, whole_keys
from turnwise.tools.workspace import workspace_tools
from turnwise.vocab import Usage

CHAT = PATHS["openai_chat"]
FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
ENDPOINTS = {"openai_chat": "/v1", "openai_responses": "/v1", "anthropic": "", "gemini": "/v1beta"}
FAMILY_OF = {"anthropic": "anthropic_messages"}
SCHEMA = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
ROOT = Path(__file__).resolve().parents[2]


def reply(messages: list[Any], *, model: str, **more: Any) -> dict[str, Any]:
    """The message of a Chat Completions answer to this history."""
    body = {**body_of("openai_chat", model=model, stream=False), "messages": messages, **more}
    outgoing, _ = ask(CHAT, body)
    assert outgoing.status == 200, outgoing.pieces
    return json.loads(b"".join(outgoing.pieces))["choices"][0]["message"]


def called(name: str, arguments: str = "{}", id: str = "c1") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": id, "type": "function", "function": function}]}


def result(content: str, id: str = "c1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def names(message: dict[str, Any]) -> list[str]:
    return [call["function"]["name"] for call in message.get("tool_calls") or []]


ASKED = user("Please.")
READ = [ASKED, called("read"), result("status: draft\n")]


def test_the_edit_is_made_of_what_was_read() -> None:
    """Proves: read-edit-answer uses the result that it was sent, so a client that loses it is found out."""
    (edit,) = reply(READ, model="read-edit-answer")["tool_calls"]
    assert json.loads(edit["function"]["arguments"]) == {
        "path": "notes.txt",
        "old": "status: draft",
        "new": "status: done",
    }
    nothing = reply([ASKED, called("read"), result("(nothing)")], model="read-edit-answer")
    assert nothing["content"] == "I read notes.txt, but what I was to change is not in it."


def test_the_next_step_is_told_by_the_turn_at_hand() -> None:
    """Proves: earlier turns do not count, an instruction after results does not begin a turn."""
    turn = [*READ, called("edit", id="c2"), result("edited", id="c2")]
    assert names(reply([ASKED], model="read-edit-answer")) == ["read"]
    assert names(reply(READ, model="read-edit-answer")) == ["edit"]
    assert names(reply([*READ, user("(Mind the time.)")], model="read-edit-answer")) == ["edit"]
    assert reply(turn, model="read-edit-answer")["content"] == "Done: notes.txt now says 'status: done'."
    over = [*turn, {"role": "assistant", "content": "Done."}, user("Once more.")]
    assert names(reply(over, model="read-edit-answer")) == ["read"]


def test_call_ids_are_new_in_their_conversation() -> None:
    """Proves: ids differ from step to step and turn to turn, and are the same for the same body."""
    first = reply([ASKED], model="parallel-calls")["tool_calls"]
    assert [call["id"] for call in first] == ["call_1_1", "call_1_2"]
    assert first == reply([ASKED], model="parallel-calls")["tool_calls"]
    later = [*READ, {"role": "assistant", "content": "x"}, ASKED]
    assert [call["id"] for call in reply(later, model="parallel-calls")["tool_calls"]] == ["call_3_1", "call_3_2"]


@pytest.mark.parametrize(
    ("model", "choice", "tools", "expected"),
    [
        ("never-stops", "auto", True, ["search"]),
        ("never-stops", "none", True, []),
        ("never-stops", None, False, []),
        ("never-stops-disobeys", "none", True, ["search"]),
        ("never-stops-disobeys", None, False, []),
        ("never-stops-at-all", "none", True, ["search"]),
        ("never-stops-at-all", None, False, ["search"]),
        ("disobeys-none", "none", True, ["read"]),
        ("research", "none", True, []),
    ],
)
def test_a_script_obeys_as_far_as_it_says(model: str, choice: str | None, tools: bool, expected: list[str]) -> None:
    """Proves: tool choice none and missing tools silence those scripts that obey them, and no others."""
    body = {
        **body_of("openai_chat", model=model, stream=False, tools=("read", "search") if tools else ()),
        "messages": READ,
    }
    if choice is not None:
        body["tool_choice"] = choice
    outgoing, _ = ask(CHAT, body)
    message = json.loads(b"".join(outgoing.pieces))["choices"][0]["message"]
    assert names(message) == expected
    assert message["content"] or expected


def test_a_tool_of_any_name_will_do_for_the_scripts_that_say_so() -> None:
    """Proves: other people's agents, whose tools have other names, are called by those, with arguments of their schema."""
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "deep": {"type": "array", "items": {"enum": ["a"]}}},
    }
    tool = {"type": "function", "function": {"name": "their_own", "parameters": schema}}
    (call,) = reply([ASKED], model="never-stops", tools=[tool])["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == (
        "their_own",
        {"n": 1, "deep": ["a"]},
    )


def test_an_empty_answer_is_followed_by_one_once_the_user_says_so() -> None:
    """Proves: a further text of the user is the trace that an empty answer leaves, wherever the family puts it."""
    assert reply([ASKED], model="empty-once")["content"] in (None, "")
    assert reply([ASKED, user("Empty!")], model="empty-once")["content"] == "Sorry, here is the answer."
    assert reply([user("Please.\n"), user("Empty!")], model="empty-answer")["content"] in (None, "")
    merged = {
        "messages": [{"role": "user", "content": [{"type": "text", "text": text} for text in ("Please.", "Empty!")]}]
    }
    outgoing, _ = ask(
        PATHS["anthropic_messages"], {**body_of("anthropic_messages", model="empty-once", stream=False), **merged}
    )
    assert json.loads(outgoing.pieces[0])["content"][0]["text"] == "Sorry, here is the answer."


def test_the_reply_depends_on_the_body_alone() -> None:
    """Proves: the same body gives the same bytes, from a fresh provider and from one that has answered others."""
    for family in FAMILIES:
        for stream in (False, True):
            path = path_of(family, model="read-edit-answer", stream=stream)
            body = body_of(family, model="read-edit-answer", stream=stream)
            assert ask(path, body)[0] == ask(path, body)[0]


def test_usage_is_bytes_by_four() -> None:
    """Proves: tokens are countable by a test: the body's bytes and the answer's, each by four, rounded up."""
    body = json.dumps(body_of("openai_chat", model="plain-answer", stream=False)).encode()
    _, kept = ask(CHAT, body)
    answer = "Hello from the lab. Everything you sent was well-formed."
    assert kept.usage == Usage(input_tokens=-(-len(body) // 4), output_tokens=-(-len(answer) // 4))


@pytest.mark.promise("cut:never-run")
def test_a_cut_call_is_cut_as_its_family_cuts() -> None:
    """Proves: Chat and Responses send the raw prefix; Anthropic's stream holds the parameter back unless it streams
    eagerly, its body and Gemini hand out an object of the keys that were whole."""
    whole = json.dumps({"path": "big.txt", "content": numbered_lines(1, 200)}, separators=(",", ":"))

    def sent(family: str, *, stream: bool, **more: Any) -> bytes:
        path = path_of(family, model="cut-call", stream=stream)
        return b"".join(ask(path, {**body_of(family, model="cut-call", stream=stream), **more})[0].pieces)

    choice = json.loads(sent("openai_chat", stream=False))["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == whole[:2000]
    answer = json.loads(sent("openai_responses", stream=False))
    assert (answer["status"], answer["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert (answer["output"][0]["arguments"], answer["output"][0]["status"]) == (whole[:2000], "incomplete")
    message = json.loads(sent("anthropic_messages", stream=False))
    assert (message["stop_reason"], message["content"][0]["input"]) == ("max_tokens", {"path": "big.txt"})

    def deltas(stream: bytes) -> str:
        events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith(b"data: ")]
        return "".join(
            [event["delta"].get("partial_json", "") for event in events if event["type"] == "content_block_delta"]
        )

    assert deltas(sent("anthropic_messages", stream=True)) == '{"path":"big.txt"'
    eager = [{"name": "write", "input_schema": {"type": "object"}, "eager_input_streaming": True}]
    assert deltas(sent("anthropic_messages", stream=True, tools=eager)) == whole[:2000]
    candidate = json.loads(sent("gemini", stream=False))["candidates"][0]
    assert candidate["finishReason"] == "MAX_TOKENS"
    assert candidate["content"]["parts"][0]["functionCall"]["args"] == {"path": "big.txt"}


@pytest.mark.promise("assembly:kinds")
@pytest.mark.parametrize(
    ("family", "refusal"),
    [
        ("anthropic_messages", "messages.1.content.0: Invalid `signature` in `thinking` block"),
        ("openai_responses", "The encrypted content bGFi...ZA== could not be verified."),
        ("gemini", "Function call is missing a thought_signature in functionCall parts."),
    ],
)
def test_a_thought_has_to_come_back_as_it_was(family: str, refusal: str) -> None:
    """Proves: the lab signs its thoughts and refuses changed ones, as the APIs do; a client that loses them is found out."""
    body = body_of(family, model="reasoning-and-calls", stream=False)
    broken = b64encode(b"lab, forgeded").decode()
    match family:
        case "anthropic_messages":
            answer = json.loads(ask(PATHS[family], body)[0].pieces[0])
            thinking, use = answer["content"]
            given = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use["id"], "content": "x"}]}

            def again(thinking: dict[str, Any]) -> dict[str, Any]:
                return {
                    **body,
                    "messages": [*body["messages"], {"role": "assistant", "content": [thinking, use]}, given],
                }

            good, bad = again(thinking), again({**thinking, "thinking": "Something else."})
        case "openai_responses":
            body["include"] = ["reasoning.encrypted_content"]
            reasoning, call = json.loads(ask(PATHS[family], body)[0].pieces[0])["output"]
            given = {"type": "function_call_output", "call_id": call["call_id"], "output": "x"}

            def again(reasoning: dict[str, Any]) -> dict[str, Any]:
                return {**body, "input": [*body["input"], reasoning, call, given]}

            good, bad = again(reasoning), again({**reasoning, "encrypted_content": broken})
        case _:
            path = path_of(family, model="reasoning-and-calls", stream=False)
            (candidate,) = json.loads(ask(path, body)[0].pieces[0])["candidates"]
            given = {"role": "user", "parts": [{"functionResponse": {"name": "read", "response": {"output": "x"}}}]}

            def again(content: dict[str, Any]) -> dict[str, Any]:
                return {**body, "contents": [*body["contents"], content, given]}

            unsigned = [
                {key: value for key, value in part.items() if key != "thoughtSignature"}
                for part in candidate["content"]["parts"]
            ]
            good, bad = again(candidate["content"]), again({"role": "model", "parts": unsigned})
    path = path_of(family, model="reasoning-and-calls", stream=False)
    outgoing, kept = ask(path, good)
    assert (outgoing.status, kept.refused, kept.step) == (200, None, 2)
    outgoing, kept = ask(path, bad)
    assert outgoing.status == 400 and kept.refused is not None and kept.refused.startswith(refusal)


def test_a_pause_exists_where_the_family_has_one() -> None:
    """Proves: a script of one family is an unknown model to the others."""
    outgoing, kept = ask(CHAT, body_of("openai_chat", model="pause", stream=False))
    assert (outgoing.status, kept.refused) == (404, "The model `pause` does not exist or you do not have access to it.")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("title = 3\nsteps = []", "script `x`: Expected `str`, got `int` - at `$.title`"),
        ("title = 'x'\nsteps = []", "script `x` has no steps"),
        ("title = 'x'\n[[steps]]\ntxt = 'y'", "script `x`: Object contains unknown field `txt` - at `$.steps[0]`"),
        (
            "title = 'x'\n[[steps]]\ntext = '{who}'",
            "script `x`, step 1: `{who}` is no parameter and nothing that it takes",
        ),
        ("title =", "script `x`: Invalid value (at end of document)"),
    ],
)
def test_a_script_that_cannot_be_used_says_why(text: str, said: str) -> None:
    """Proves: one clear line for each kind of mistake."""
    with pytest.raises(ScriptError) as caught:
        parse_script(text, name="x")
    assert str(caught.value) == said


def test_scripts_of_a_folder_and_changed_parameters(tmp_path: Path) -> None:
    """Proves: a user's own scripts load by their file's name, and parameters can be changed but not made up."""
    (tmp_path / "own.toml").write_text("title = 'own'\n[parameters]\nword = 'hi'\n[[steps]]\ntext = '{word}!'\n")
    own = load_scripts(tmp_path)["own"]
    changed = own.with_parameters({"word": "bye"})
    outgoing, _ = ask(CHAT, body_of("openai_chat", model="own", stream=False), scripts={"own": changed})
    assert json.loads(outgoing.pieces[0])["choices"][0]["message"]["content"] == "bye!"
    with pytest.raises(ScriptError, match="script `own` has no parameter `other`; it has `word`"):
        own.with_parameters({"other": 1})


def test_examples_fit_their_schema() -> None:
    """Proves: an answer made up from a schema is one of the schema's."""
    schema: Any = {
        "$defs": {"city": {"type": "object", "properties": {"name": {"type": "string"}}}},
        "type": "object",
        "properties": {
            "city": {"$ref": "#/$defs/city"},
            "kind": {"enum": ["b", "c"]},
            "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "yes": {"type": ["boolean", "null"]},
        },
    }
    assert example_of(schema) == {"city": {"name": "text"}, "kind": "b", "maybe": 1, "yes": True}


def test_whole_keys_are_those_that_ended_before_the_cut() -> None:
    """Proves: a key is handed out only once its value is whole."""
    arguments: dict[str, object] = {"a": "x", "b": "yy", "c": "z"}
    text = '{"a":"x","b":"yy","c":"z"}'
    assert [whole_keys(arguments, within=cut) for cut in (7, 8, 16, 17, len(text))] == [
        {},
        {"a": "x"},
        {"a": "x"},
        {"a": "x", "b": "yy"},
        arguments,
    ]


def test_the_docs_list_every_script() -> None:
    """Proves: docs/lab.md names each script with its own title."""
    text = (ROOT / "docs" / "lab.md").read_text(encoding="utf-8")
    missing = [name for name, script in builtin_scripts().items() if f"| `{name}` | {script.title} |" not in text]
    assert missing == []


def told_requests(script: Script) -> str:
    """The last cell of a script's row."""
    if script.requests is None:
        return ""
    return f"{script.requests} + {script.continuations}" if script.continuations else str(script.requests)


def test_the_docs_say_how_many_requests_a_script_takes_and_how_many_of_them_continue() -> None:
    """Proves: each row of docs/lab.md ends with what its script says of itself."""
    lines = (ROOT / "docs" / "lab.md").read_text(encoding="utf-8").splitlines()
    rows = {
        line.split("`")[1]: line.rpartition(" | ")[2].removesuffix("|").strip() for line in lines if line[:3] == "| `"
    }
    scripts = {name: script for name, script in builtin_scripts().items() if script.writer is None}
    assert {name: rows[name] for name in scripts} == {name: told_requests(one) for name, one in scripts.items()}


@pytest.mark.parametrize(
    ("name", "family"),
    [
        (name, family)
        for name, script in builtin_scripts().items()
        for family in ENDPOINTS
        if script.requests is not None and script.speaks(FAMILY_OF.get(family, family))
    ],
)
async def test_a_turn_takes_the_requests_that_its_script_names(name: str, family: str, tmp_path: Path) -> None:
    """Proves by the lab's own count, streamed: the requests besides those to continue are as many in every family, and those to
    continue are made where the prefix of a cut call can be had. From a tester: the table said 4, and turnwise made 5."""
    script = builtin_scripts()[name]
    (tmp_path / "notes.txt").write_text("status: draft\n")
    (tmp_path / "todo.txt").write_text("nothing\n")
    lab = Lab()
    agent = flat_agent(
        f"{family}:{name}",
        base_url=f"http://lab{ENDPOINTS[family]}",
        api_key="k",
        transport=lab.transport(),
        tools=workspace_tools(tmp_path),
        output_type=SCHEMA if name == "structured-output" else None,
    )
    result = await agent.run("Please.")
    made = dict(result.requests_by_purpose)
    continued = made.pop("continue", 0)
    assert sum(made.values()) + continued == lab.count()
    assert (sum(made.values()), continued) == (script.requests, 0 if family == "gemini" else script.continuations)
