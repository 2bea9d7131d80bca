"""Bad input and failing providers: one clear line each, an exit code that is not 0, and nowhere a traceback or a key."""

import sqlite3
from pathlib import Path

import pytest

from terminal.conftest import KEY
from terminal.running import Cli, at, running_lab, script
from turnwise.lab import Lab

NO_SERVER = "http://127.0.0.1:1/v1"  # nothing listens on port 1
PLAIN = ("--model", "openai_chat:x", "--base-url", NO_SERVER)

LIST_AND_WRITE = script(
    "list-and-write",
    r"""
[[steps]]
calls = [
    { name = "write", arguments = { path = "na\\xefve", content = "new\n", overwrite = true } },
    { name = "bash", arguments = { command = "echo told $(ls | wc -l)" } },
    { name = "read", arguments = { path = "../x" } },
]

[[steps]]
text = "It said: {results}"
""",
)

each_family = pytest.mark.parametrize("family", ["openai_chat", "openai_responses", "anthropic_messages", "gemini"])


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["rnu", "hi"], "no command `rnu`; did you mean `run`? (see `turnwise --help`)"),
        (["sesions", "list"], "no command `sesions`; did you mean `sessions`? (see `turnwise --help`)"),
        (["what"], 'no command `what`; did you mean `chat`? If it is a prompt: turnwise -p "what" (see'),
        (
            ["what", "does", "this", "do"],
            "no command `what`; put a prompt in quotes: turnwise 'what does this do' (see",
        ),
        (
            ["explain", "-m", "a:b", "it"],
            "no command `explain`; put a prompt in quotes: turnwise -m a:b 'explain it' (see",
        ),
        (["-m", "M", "modles"], "no command `modles`; did you mean `models`?"),
        (["login"], "no command `login`; did you mean `auth add`?"),
        (["hepl"], "no command `hepl`; did you mean `--help`?"),
        (["confg"], "no command `confg`; did you mean `doctor`?"),
        (["--yolo", "fix it"], "no option `--yolo`: --mode edits changes files unasked; Shift-Tab in a session"),
        (["-p", "--resume", "hi"], "no option `--resume`: --continue goes on with the last session here"),
        (
            ["-m", "M", "sk-ant-0123456789"],
            "that looks like a key, and was sent to nobody: `turnwise auth add` asks for it",
        ),
        (["login", "openai"], "no command `login`; did you mean `auth add`?"),
        (["-m", "hi", "hi", "you"], "put a prompt in quotes: turnwise -m hi 'hi you'"),
        (["-m", "M", "x", "y" * 300], 'put a prompt in quotes: turnwise "..."'),
        (["a\x1b[2Jb", "c"], "put a prompt in quotes: turnwise 'a"),
        (["-m", "M", "hello"], 'a session needs a terminal: give the prompt to `turnwise -p "..."` instead'),
        (["fix the typo"], 'a session needs a terminal: give the prompt to `turnwise -p "..."` instead'),
        (["chat", "it's", "--allow=write"], "a session needs a terminal"),
        (["chat", "fix", "it"], "the PROMPT has come as 2 words: put it in quotes"),
        (["-", *PLAIN], "`-` is what is piped in: `turnwise -p -` takes it as the prompt"),
        (["-p", "hi"], "no model: give --model PROVIDER:NAME"),
        (["-m", "llama3", "--prompt=hi you"], "`llama3` is no model"),
        (["-phi"], "no model: give --model PROVIDER:NAME"),
        (["run", "--print", "hi"], "no model: give --model PROVIDER:NAME"),
        (["-p"], "no PROMPT: write what the model shall do"),
        (["--verson"], "No such option '--verson'. Did you mean '--version'? (see `turnwise --help`)"),
        (["run", "--modl", "x", "hi"], "No such option '--modl'. (Did you mean one of: '--mode', '--model'?)"),
        (["run"], "no PROMPT: write what the model shall do"),
        (["run", "  ", *PLAIN], "the prompt is empty"),
        (["run", "hi", "there", *PLAIN], "the PROMPT has come as 2 words: put it in quotes"),
        (["run", "hi"], "no model: give --model PROVIDER:NAME (for example openai:gpt-6.1-sol), or set TURNWISE_MODEL"),
        (["run", "hi", "-m", "gpt-5"], "`gpt-5` names no provider: did you mean `openai:gpt-5`?"),
        (["run", "hi", "-m", "claude-sonnet-4-5"], "did you mean `anthropic:claude-sonnet-4-5`?"),
        (["run", "hi", "-m", "claude:sonnet"], "did you mean `anthropic:`?"),
        (["run", "hi", "-m", "sonnet:4.5"], "did you mean `anthropic:`?"),
        (["run", "hi", "-m", "opus"], "did you mean `anthropic:NAME`?"),
        (["run", "hi", "-m", "gpt5-mini"], "did you mean `openai:gpt5-mini`?"),
        (["run", "hi", "-m", "anthropic/claude-sonnet-4-5"], "did you mean `anthropic:claude-sonnet-4-5`?"),
        (["run", "hi", "-m", "openrouter/qwen/qwen3-coder"], "did you mean `openrouter:qwen/qwen3-coder`?"),
        (["run", "hi", "-m", "llama3"], "`llama3` is no model: write PROVIDER:NAME"),
        (
            ["run", "hi", "-m", "opnai:gpt-5"],
            "`opnai` is no provider or API family that turnwise knows; did you mean `openai`",
        ),
        (
            ["run", "hi", "-m", "openai:gpt-5"],
            "`openai` wants a key: set `OPENAI_API_KEY`, or store it with `turnwise auth add`, or give the name",
        ),
        (["run", "hi", *PLAIN, "--api-key-env", "NO_SUCH"], "the variable `NO_SUCH` is not set"),
        (["run", "hi", "-m", "openai_chat:x"], "`openai_chat` has no address of its own: give --base-url"),
        (["run", "hi", "-m", "openai_chat:x", "--base-url", "here"], "`here` must begin with http:// or https://"),
        (["run", "hi", "-m", "openai_chat:x", "--base-url", "http://u:p@h/v1"], "must not hold a user or password"),
        (["run", "hi", "--max-steps", "0"], "Invalid value for '--max-steps': 0 is not in the range"),
        (["run", "hi", "--max-steps", "many"], "Invalid value for '--max-steps': 'many' is not a valid integer"),
        (
            ["run", "hi", "--allow", "everything"],
            "Invalid value for '--allow': `everything` is neither `write`, `bash`",
        ),
        (["run", "hi", "--cwd", "nowhere"], "Invalid value for '--cwd': Directory 'nowhere' does not exist"),
        (["run", "hi", *PLAIN, "--output-schema", "nowhere"], "--output-schema: `nowhere`: No such file or directory"),
        (["run", "hi", *PLAIN, "--output-schema", "notes.txt"], "--output-schema: `notes.txt` is no JSON"),
        (["run", "hi", *PLAIN, "--output-schema", "list.json"], "--output-schema: `list.json` holds no JSON object"),
        (["run", "hi", *PLAIN, "--output-schema", "odd.json"], "the output schema is no usable JSON Schema"),
        (["run", "hi", "--continue"], "there is no session of `"),
        (["run", "hi", "--session", "0123abcd"], "there is no session `0123abcd`; `turnwise sessions list` shows them"),
        (["run", "hi", "--continue", "--session", "0123"], "give either --continue or --session, not both"),
        (["sessions", "shwo"], "No such command 'shwo'. Did you mean 'show'? (see `turnwise sessions --help`)"),
        (["sessions", "show"], "Missing argument 'SESSION'"),
        (["sessions", "show", "x"], "`x` is no session id"),
        (["sessions", "list", "-n", "0"], "Invalid value for '-n' / '--limit'"),
        (["decode"], "Missing argument 'FILE...'"),
        (["decode", "notes.txt"], "Missing option '--family'"),
        (["decode", "notes.txt", "--family", "opnai_chat"], "`opnai_chat` is no provider or API family"),
        (["lab", "--scripts", "nowhere"], "Invalid value for '--scripts': Directory 'nowhere' does not exist"),
        (["lab", "--list", "--conversation", "notes.txt"], "notes.txt"),
        (["lab", "--as", "deepsek"], "there is no profile `deepsek`: docs/providers.md lists them"),
        (["demo", "--fast"], "No such option '--fast'"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_wrong_use_is_one_line_on_standard_error_and_exit_code_2(
    cli: Cli, folder: Path, args: list[str], said: str
) -> None:
    """What is wrong, where, and what to do; nothing on standard output but, with --json, a result."""
    (folder / "list.json").write_text("[]")
    (folder / "odd.json").write_text('{"type": "objekt"}')
    ways = (args, [*args, "--json"]) if args[0] == "run" else (args,)
    for way in ways:
        ran = cli(*way)
        assert (ran.code, len(ran.err.splitlines())) == (2, 1), ran
        assert [one["stop_reason"] for one in ran.events()] == ["not_begun"] * ("--json" in way)
        assert said in ran.err and ran.err.startswith("turnwise: ")


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("turnwise.toml", b"model = ", "turnwise.toml`: Invalid value (at "),
        ("turnwise.toml", b"modle = 'x:y'", "turnwise.toml`: `modle`: no such setting; did you mean `model`?"),
        (
            "turnwise.toml",
            b"max_steps = 0",
            "turnwise.toml`: `max_steps`: Expected `int` >= 1; correct it, or take it out",
        ),
        (
            "turnwise.toml",
            b"base_url = 'http://x'",
            "turnwise.toml`: `base_url`: a project's file cannot say where your key goes",
        ),
        ("turnwise.toml", b"model_limits.a.window = 0", "`model_limits`, `a`: a limit is a number of tokens above 0"),
        ("pyproject.toml", b"[tool.turnwise]\nx = 1", "pyproject.toml`: `tool.turnwise.x`: no such setting; there are"),
        ("turnwise.toml", b"\xff", "turnwise.toml` is not UTF-8 (byte 0): save it as UTF-8"),
        ("AGENTS.md", b"\xff", "AGENTS.md` is not UTF-8 (byte 0); leave it out with --no-agents-md"),
        ("AGENTS.md", b"x" * 70_000, "AGENTS.md` has 70000 bytes; 65536 at most, or leave it out with --no-agents-md"),
    ],
)
def test_a_bad_file_of_the_folder_is_named(cli: Cli, folder: Path, file: str, content: bytes, said: str) -> None:
    """Before anything is sent."""
    (folder / file).write_bytes(content)
    ran = cli("run", "hi", *PLAIN)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert said in ran.err


def test_an_unreachable_address_is_said_once(cli: Cli, folder: Path) -> None:
    """The answer on standard output says what failed, the line on standard error what to do; exit code 6."""
    ran = cli("run", "hi", *PLAIN, "--retries", "0")
    assert ran.code == 6
    assert (
        len(ran.out.splitlines()) == 1 and "unreachable: no connection to `127.0.0.1:1`: Connection refused" in ran.out
    )
    assert len(ran.err.splitlines()) == 1 and "check the address (--base-url), and that the server runs" in ran.err


@each_family
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fault-html", "The provider failed, protocol: "),
        ("fault-401", "The provider failed (401), auth: "),
        ("fault-endless-line", "The provider failed, too_large: a line of the stream is longer than 8388608 bytes"),
        ("fault-random-bytes", "The provider failed, protocol: "),
    ],
)
@pytest.mark.promise("assembly:bounded", "end:reason")
def test_what_a_broken_provider_sends_is_one_clear_line(cli: Cli, lab: Lab, family: str, name: str, said: str) -> None:
    """HTML, a 401, a 10 MB line, random bytes; exit code 6, and no control character reaches the terminal."""
    ran = cli("run", "hi", *at(lab, name, family=family))
    assert (ran.code, len(ran.out.splitlines()), len(ran.err.splitlines())) == (6, 1, 1), ran
    assert ran.out.startswith(said) and "the provider failed: check " in ran.err
    assert not [char for char in ran.out if char < " " and char != "\n"]


@each_family
@pytest.mark.parametrize(
    ("name", "retries"),  # the 429 asks for two seconds before each
    [("fault-429", 0), ("fault-500", 1), ("fault-529", 1), ("fault-error-in-stream", 1), ("fault-reset", 1)],
)
def test_every_other_fault_ends_with_a_text_and_exit_code_6(
    cli: Cli, lab: Lab, family: str, name: str, retries: int
) -> None:
    """The last JSON line says so too, once the retries that are allowed have failed as well."""
    ran = cli("run", "hi", "--json", "--retries", str(retries), *at(lab, name, family=family))
    assert lab.count() == 1 + retries
    last = ran.events()[-1]
    assert (ran.code, last["stop_reason"], last["complete"], ran.err) == (6, "provider_failed", False, "")
    assert last["text"].startswith("The provider failed")


@each_family
def test_invalid_utf8_inside_a_text_is_repaired_and_told(cli: Cli, lab: Lab, family: str) -> None:
    """The rest of the answer is given, but it is not complete: bytes of it are lost. The repair is on the screen."""
    ran = cli("run", "hi", *at(lab, "fault-invalid-utf8", family=family))
    assert ran.code == 3 and "\ufffd" in ran.out and "answered from incomplete data" in ran.err
    assert "repaired " in ran.err


def test_a_wrong_key_is_a_401_in_one_line(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lab wants another one; ours is in no output."""
    monkeypatch.setenv("MY_KEY", KEY)
    with running_lab(key="another") as strict:
        ran = cli("run", "hi", "--api-key-env", "MY_KEY", *at(strict, "plain-answer"))
    assert (ran.code, ran.out) == (6, "The provider failed (401), auth: Incorrect API key provided.\n")
    assert (
        "check the key, and that it may use this model (`turnwise auth add` stores one; --api-key-env names a"
        in ran.err
        and KEY not in ran.err
    )
    with running_lab(key="another") as strict:
        unsaid = cli("run", "hi", *at(strict, "plain-answer"))
    assert unsaid.out == "The provider failed (401), auth: Incorrect API key provided. (no key was sent)\n"


@each_family
def test_a_key_that_is_quoted_back_is_hidden(
    cli: Cli, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    """Out of the error's text, on the screen, in the JSON lines and in the journal's file."""
    monkeypatch.setenv("MY_KEY", KEY)
    for way in ((), ("--json",)):
        ran = cli("run", "hi", *way, "--api-key-env", "MY_KEY", *at(lab, "leaky", family=family))
        assert ran.code == 6 and "wrong key" in ran.out
        assert KEY not in ran.out + ran.err
    kept = b"".join([path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()])
    assert b"wrong key" in kept and KEY.encode() not in kept


def test_a_damaged_journal_is_named(cli: Cli, folder: Path, tmp_path: Path) -> None:
    """No session is made up, and the line says what to do."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "journal.db").write_bytes(b"not a database, " * 100)
    for args in (["sessions", "list"], ["run", "hi", *PLAIN]):
        ran = cli(*args)
        assert (ran.code, ran.out) == (2, "") and "journal.db` is damaged or no SQLite file" in ran.err
    (tmp_path / "state" / "journal.db").unlink()
    sqlite3.connect(tmp_path / "state" / "journal.db").execute("create table other (x)").connection.close()
    assert "is not a journal of turnwise" in cli("sessions", "list").err


NO_TEXT = "caf\udce9"  # as Python holds the bytes `caf\xe9` of a command line


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["run", NO_TEXT, *PLAIN], "[PROMPT] is no text"),
        (["run", f"see @{NO_TEXT}.txt", *PLAIN], "[PROMPT] is no text"),
        (["run", "hi", "-m", f"openai_chat:{NO_TEXT}"], "--model is no text"),
        (["run", "hi", "--system", NO_TEXT, *PLAIN], "--system is no text"),
        (["run", "hi", "--session", NO_TEXT, *PLAIN], "--session is no text"),
        (["run", "hi", "--allow", f"bash({NO_TEXT})", *PLAIN], "write it in UTF-8"),
        (["run", "hi", *PLAIN, "--base-url", f"http://{NO_TEXT}/v1"], "--base-url is no text"),
        (["sessions", "show", NO_TEXT], "is no text"),
        (["chat", "-m", f"openai_chat:{NO_TEXT}"], ""),
        (["models", NO_TEXT], "is no text"),
        (["mcp", "add", "x", "--", NO_TEXT], "is no text"),
        (["gateway", "--host", NO_TEXT], ""),
        (["worker", NO_TEXT], ""),
        ([NO_TEXT], "UTF-8"),
    ],
)
def test_what_is_no_text_is_a_wrong_use(args: list[str], said: str, cli: Cli) -> None:
    """Proves: bytes that are not UTF-8 in any word end with exit code 2 and a line that shows them. Found: exit code 70, or a
    codec's message."""
    ran = cli(*args)
    assert ran.code == 2 and said in ran.err and "codec" not in ran.err and "this is a bug" not in ran.err, ran
    assert "is no text" not in said or "caf\\xe9" in ran.err


def test_a_folder_whose_name_is_no_text_works(
    lab: Lab, cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proves: a run, its session, a command and what it takes back work in such a folder, by the name that is shown."""
    work = folder / "caf\udce9"
    work.mkdir()
    monkeypatch.chdir(work)
    with running_lab([LIST_AND_WRITE]) as own:
        ran = cli("run", "go", *at(own, "list-and-write"), "--allow", "write", "--allow", "bash")
        assert ran.code == 0, ran.err
        assert (work / "na\udcefve").read_text() == "new\n", ran
        shown = cli("sessions", "list")
        assert "caf\\xe9" in shown.out and shown.code == 0
        assert cli("run", "--continue", "again", *at(own, "list-and-write"), "--json").code == 8  # nobody was asked
        assert cli("undo", "--yes").code == 0
