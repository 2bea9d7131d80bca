"""`turnwise run` against the lab, in all four families: what it does, says, counts and ends with."""

import io
import json
import os
import sys
from pathlib import Path

import pytest

from terminal.running import Cli, at
from turnwise.lab import Lab

each_family = pytest.mark.parametrize("family", ["openai_chat", "openai_responses", "anthropic_messages", "gemini"])
each_way = pytest.mark.parametrize("way", [(), ("--no-stream",)], ids=["streamed", "whole"])

RESULT_KEYS = (
    "event text stop_reason complete why_incomplete fault steps requests requests_by_purpose usage recovery_usage "
    "cost_usd repairs asks denied children session exit_code"
).split()
USAGE_KEYS = "input_tokens output_tokens reasoning_tokens cache_read_tokens cache_write_tokens".split()


@each_family
@each_way
@pytest.mark.promise("step:sequential", "step:one-request", "end:early")
def test_read_edit_answer_takes_three_requests(
    cli: Cli, lab: Lab, folder: Path, family: str, way: tuple[str, ...]
) -> None:
    """A real file is read, edited and spoken of; the lab's own count says three, and nothing was refused."""
    ran = cli("run", "Set it to done.", "--json", "--allow", "write", *way, *at(lab, "read-edit-answer", family=family))
    last = ran.events()[-1]
    assert (ran.code, last["requests"], last["steps"], lab.count(), lab.count(status=200)) == (0, 3, 3, 3, 3)
    assert (folder / "notes.txt").read_text() == "status: done\n"
    assert {one.streamed for one in lab.requests} == {not way}


def test_a_run_leaves_no_file_open(cli: Cli, lab: Lab, folder: Path) -> None:
    """Proves: in a folder with an AGENTS.md, of which turnwise keeps a record. An editor's process runs for days."""
    (folder / "AGENTS.md").write_text("Be short.\n")
    open_files = list[int]()
    for _ in range(3):
        assert cli("run", "Set it to done.", "--allow", "write", *at(lab, "read-edit-answer")).code == 0
        open_files.append(len(list(Path("/proc/self/fd").iterdir())))
    assert open_files[1] == open_files[2]


@each_family
@each_way
@pytest.mark.promise("step:parallel-together")
def test_two_parallel_calls_take_two_requests(cli: Cli, lab: Lab, family: str, way: tuple[str, ...]) -> None:
    """Both results go back in the one follow-up."""
    ran = cli("run", "Read both.", "--json", *way, *at(lab, "parallel-calls", family=family))
    events = ran.events()
    assert (ran.code, events[-1]["requests"], lab.count(), lab.count(status=200)) == (0, 2, 2, 2)
    assert [one["event"] for one in events].count("tool_result") == 2
    assert events[-1]["text"] == "I have read notes.txt and todo.txt."
    assert [word in lab.requests[1].body.decode() for word in ("status: draft", "nothing")] == [True, True]


@each_family
@pytest.mark.promise("end:cap", "end:forced-answer", "end:reason")
def test_a_model_that_never_stops_makes_exactly_as_many_requests_as_steps(cli: Cli, lab: Lab, family: str) -> None:
    """The last of N steps answers; the face says that the answer rests on incomplete data."""
    ran = cli("run", "Search.", "--max-steps", "4", *at(lab, "never-stops", family=family))
    assert (ran.code, lab.count()) == (3, 4)
    assert ran.out.strip()
    assert "answered from incomplete data: step_limit; `turnwise run --session " in ran.err
    assert '--max-steps 8 "go on"` goes on (4 steps, 4 requests' in ran.err
    result = cli("run", "Search.", "--json", "--max-steps", "4", *at(lab, "never-stops", family=family)).events()[-1]
    assert (result["stop_reason"], result["complete"], result["steps"]) == ("step_limit", False, 4)
    assert result["text"].strip()


@pytest.mark.parametrize(
    ("name", "requests"),
    [
        ("never-stops-disobeys", 3),  # it calls a tool, and says something beside it: that is the answer
        ("never-stops-at-all", 4),  # one more where the last step was disobeyed
        ("disobeys-none", 3),
        ("empty-after-calls", 3),
        ("empty-answer", 2),
        ("empty-once", 2),
    ],
)
@pytest.mark.promise("end:cap", "end:never-empty", "end:reason")
def test_disobedient_and_empty_models_end_with_an_answer(cli: Cli, lab: Lab, name: str, requests: int) -> None:
    """N + 1 requests at most, a text, and a reason."""
    ran = cli("run", "Go.", "--json", "--max-steps", "3", *at(lab, name))
    last = ran.events()[-1]
    assert last["text"].strip() and last["stop_reason"] in ("answered", "step_limit")
    assert (last["requests"], lab.count()) == (requests, requests)
    assert ran.code == (0 if last["complete"] else 3)


@pytest.mark.parametrize(
    ("name", "code", "stop_reason"),
    [
        ("plain-answer", 0, "answered"),
        ("never-stops", 3, "step_limit"),
        ("cut-text", 3, "answered"),
        ("refusal", 5, "refused"),
        ("fault-500", 6, "provider_failed"),
    ],
)
@pytest.mark.promise("end:reason")
def test_the_exit_code_follows_the_stop_reason(cli: Cli, lab: Lab, name: str, code: int, stop_reason: str) -> None:
    """The same with and without --json, whatever the retries. (130 needs a signal, 4 a tool that the command line lacks.)"""
    ran = cli("run", "Go.", "--json", "--max-steps", "2", *at(lab, name))
    assert (ran.code, ran.events()[-1]["stop_reason"]) == (code, stop_reason)
    assert cli("run", "Go.", "--max-steps", "2", "--retries", "1", *at(lab, name)).code == code


def test_the_result_line_names_the_fault_of_a_provider_that_failed(cli: Cli, lab: Lab) -> None:
    """Issue 15: kind, status and message stood in no field of the last line; a script had to look for them in the text."""
    last = cli("run", "Go.", "--json", *at(lab, "fault-401")).events()[-1]
    assert (last["stop_reason"], last["fault"]["kind"], last["fault"]["status"]) == ("provider_failed", "auth", 401)
    assert last["fault"]["message"] in last["why_incomplete"] and "401" in last["why_incomplete"]
    assert cli("run", "Go.", "--json", *at(lab, "plain-answer")).events()[-1]["fault"] is None


@each_family
def test_json_lines_are_objects_and_the_last_has_exactly_the_named_keys(cli: Cli, lab: Lab, family: str) -> None:
    """Nothing else is on standard output, nothing at all on standard error, and the deltas join to what was said."""
    ran = cli("run", "Set it.", "--json", "--allow", "write", *at(lab, "read-edit-answer", family=family))
    events = ran.events()
    assert ran.err == ""
    assert list(events[-1]) == RESULT_KEYS and list(events[-1]["usage"]) == USAGE_KEYS
    assert [one["event"] for one in events].count("result") == 1
    calls = [one for one in events if one["event"] == "tool_call"]
    results = [one for one in events if one["event"] == "tool_result"]
    assert [one["name"] for one in calls] == ["read", "edit"]
    assert [one["id"] for one in results] == [one["id"] for one in calls]
    last_request = max(place for place, one in enumerate(events) if one["event"] == "request")
    assert "".join(one["delta"] for one in events[last_request:] if one["event"] == "text") == events[-1]["text"]


@pytest.mark.promise("step:every-call-answered")
def test_a_denied_call_is_shown_and_says_how_to_allow_it(cli: Cli, lab: Lab, folder: Path) -> None:
    """On the screen and as JSON; the file stays as it was."""
    ran = cli("run", "Set it.", *at(lab, "read-edit-answer"))
    assert ran.code == 8
    assert (
        "✗ edit: Denied: `edit` was not run" in ran.err
        and "run turnwise again with `--allow 'edit(notes.txt)'`" in ran.err
    )
    events = cli("run", "Set it.", "--json", *at(lab, "read-edit-answer")).events()
    results = [
        (one["name"], one["is_error"], one["seconds"] is None) for one in events if one["event"] == "tool_result"
    ]
    assert results == [("read", False, False), ("edit", True, True)]
    assert (folder / "notes.txt").read_text() == "status: draft\n"


@pytest.mark.promise("cut:never-run", "step:every-call-answered")
def test_a_cut_call_is_shown_as_not_run(cli: Cli, lab: Lab, folder: Path) -> None:
    """Its result, given by the turn itself, is on the screen."""
    ran = cli("run", "Write it.", "--allow", "write", *at(lab, "cut-call"))
    assert "✗ write: Not run: the arguments of this call of `write` were cut off" in ran.err
    # In pieces, once it was told.
    assert sorted(path.name for path in folder.iterdir()) == [
        "big.txt",
        "notes.txt",
        "todo.txt",
    ]


def test_the_answer_alone_is_on_standard_output(cli: Cli, lab: Lab) -> None:
    """So that `answer=$(turnwise run ...)` works; calls, repairs and counts are beside it."""
    ran = cli("run", "Set it.", "--allow", "write", *at(lab, "read-edit-answer"))
    assert ran.out == "Done: notes.txt now says 'status: done'.\n"
    assert "→ read notes.txt\n✓ read:" in ran.err and "3 steps, 3 requests, " in ran.err


def test_a_hostile_model_cannot_drive_the_terminal(cli: Cli, lab: Lab) -> None:
    """No escape, no carriage return, no bidirectional override leaves, from text, tool names, arguments or results."""
    ran = cli("run", "Go.", *at(lab, "hostile"))
    assert ran.code == 0
    shown = cli("sessions", "show", session_of(cli))
    for text in (ran.out, ran.err, shown.out, cli("sessions", "list").out):
        assert not [
            char for char in text if (char < " " and char != "\n") or "\x7f" <= char <= "\x9f" or char == "\u202e"
        ]


def session_of(cli: Cli) -> str:
    return cli("sessions", "list", "-n", "1", "--json").events()[0]["id"]


def test_agents_md_is_told_and_sent_and_can_be_left_out(cli: Cli, lab: Lab, folder: Path) -> None:
    """The instructions of the folder travel with the request; the screen and the JSON lines say so."""
    (folder / "AGENTS.md").write_text("Bé brief.\n")
    assert "reading AGENTS.md as instructions (9 characters" in cli("run", "Hi.", *at(lab, "plain-answer")).err
    first = cli("run", "Hi.", "--json", *at(lab, "plain-answer")).events()[0]
    assert first["event"] == "note" and "AGENTS.md" in first["text"]
    assert "AGENTS.md" not in cli("run", "Hi.", "--no-agents-md", *at(lab, "plain-answer")).err
    assert ["Bé brief." in json.dumps(json.loads(one.body), ensure_ascii=False) for one in lab.requests] == [
        *[True, True, False],
    ]


@pytest.mark.parametrize("target", ["../outside.txt", ".env", "/dev/zero", "pipe"])
def test_agents_md_that_leads_elsewhere_is_left_out_and_told(cli: Cli, lab: Lab, folder: Path, target: str) -> None:
    """Issue 13, line 3: as a link it sent any file of the user to the provider, as a pipe it hung."""
    for path in (folder / ".env", folder.parent / "outside.txt"):
        path.write_text("xyzzy")
    if target == "pipe":
        os.mkfifo(folder / "AGENTS.md")
    else:
        (folder / "AGENTS.md").symlink_to(target)
    ran = cli("run", "Hi.", *at(lab, "plain-answer"))
    assert (ran.code, lab.count()) == (0, 1)
    assert "left out AGENTS.md: it " in ran.err
    assert b"xyzzy" not in lab.requests[0].body and b"AGENTS.md" not in lab.requests[0].body
    assert "AGENTS.md" not in cli("run", "Hi.", "--no-agents-md", *at(lab, "plain-answer")).err


def test_system_replaces_our_own_instructions(cli: Cli, lab: Lab) -> None:
    """`--system` is sent in place of them."""
    cli("run", "Hi.", "--system", "Speak like a pirate.", *at(lab, "plain-answer", family="anthropic_messages"))
    body = json.loads(lab.requests[0].body)
    assert (
        "Speak like a pirate." in json.dumps(body["system"])
        and "You work in a folder" not in lab.requests[0].body.decode()
    )


def test_the_folder_chooses_model_and_steps_where_nobody_else_does(
    cli: Cli, lab: Lab, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """turnwise.toml, else pyproject.toml; the environment goes before it, the command line before both."""
    monkeypatch.setenv("TURNWISE_BASE_URL", f"{lab.url}/v1")
    (folder / "pyproject.toml").write_text('[tool.turnwise]\nmodel = "openai_chat:never-stops"\nmax_steps = 2\n')
    assert cli("run", "Go.", "--json").events()[-1]["steps"] == 2
    (folder / "turnwise.toml").write_text('model = "openai_chat:never-stops"\nmax_steps = 3\n')
    assert cli("run", "Go.", "--json").events()[-1]["steps"] == 3
    monkeypatch.setenv("TURNWISE_MODEL", "openai_chat:plain-answer")
    cli("run", "Go.")
    cli("run", "Go.", "--model", "openai_chat:refusal")
    assert [one.model for one in lab.requests[-2:]] == ["plain-answer", "refusal"]


def test_the_prompt_comes_from_standard_input(cli: Cli, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """`-` reads it, in UTF-8."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("grüße".encode())))
    assert cli("run", "-", *at(lab, "plain-answer")).code == 0
    assert json.loads(lab.requests[0].body)["messages"][-1]["content"].endswith("</environment>\n\ngrüße")


def test_an_output_schema_is_kept_or_its_breach_told(cli: Cli, lab: Lab, folder: Path) -> None:
    """One correction makes it fit; a model that never fits it ends with exit code 3 and a line that says why."""
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    (folder / "shape.json").write_text(json.dumps(schema))
    ran = cli("run", "Who?", "--output-schema", "shape.json", *at(lab, "structured-output"))
    assert (ran.code, list(json.loads(ran.out)), lab.count()) == (0, ["name"], 2)
    ran = cli("run", "Who?", "--output-schema", "shape.json", *at(lab, "plain-answer"))
    assert ran.code == 3 and "the answer does not fit --output-schema" in ran.err


def test_a_command_sees_no_key(cli: Cli, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the run's own key nor those of other providers are in the environment of `bash`."""
    monkeypatch.setenv("MY_KEY", "sk-my-own-key-0001")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-another-key-0002")
    ran = cli("run", "Go.", "--json", "--allow", "bash", "--api-key-env", "MY_KEY", *at(lab, "tell-env"))
    (told,) = [one["text"] for one in ran.events() if one["event"] == "tool_result"]
    assert "PATH=" in told and "sk-my-own-key-0001" not in told and "sk-another-key-0002" not in told


def test_a_person_reads_why_a_call_was_denied_and_not_what_the_model_is_told(cli: Cli, lab: Lab) -> None:
    """Proves: advice to the model stays in its results; the line on the screen names the option that would allow the call."""
    ran = cli("run", "Go.", *at(lab, "read-edit-answer"))
    assert "Denied: `edit` was not run" in ran.err and "To allow it: run turnwise again with `--allow" in ran.err
    assert "Do not call it again" not in ran.err
    assert any(b"Do not call it again" in one.body for one in lab.requests)
