"""Whose rules hold for a run: the files', the session's, the command line's; its hooks, and how its commands run."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from terminal.running import Cli, at, running_lab, script
from turnwise.coding_agent.asked_calls import decide
from turnwise.coding_agent.permissions import allowed_rules
from turnwise.errors import CallerError
from turnwise.lab import Lab, Script
from turnwise.lab.script import ScriptedCall, ScriptedStep
from turnwise.rules.permissions import PermissionRule
from turnwise.terminal.databases import answers_of
from turnwise.terminal.exit_codes import NOTHING_CHANGED
from turnwise.terminal.status import asks_said
from turnwise.turn.config import Approval, OneAsk, mark_of
from turnwise.vocab import ToolCall
from turnwise.workers.open_asks import ShownAsk
from turnwise.workers.turn_status import A_PERSON, TurnStatus

TOUCHES = script(
    "touches",
    """
[[steps]]
calls = [{ name = "bash", arguments = { command = "touch made.txt" } }]

[[steps]]
text = "It said: {result}"
""",
)
EDITS = script(
    "edits",
    """
[[steps]]
calls = [
    { name = "edit", arguments = { path = "notes.txt", old = "draft", new = "done" } },
    { name = "edit", arguments = { path = "todo.txt", old = "nothing", new = "all" } },
]

[[steps]]
text = "Done."
""",
)

LOOKS = script(
    "looks",
    """
[[steps]]
calls = [
    { name = "bash", arguments = { command = "ls -a | head -3 2>/dev/null" } },
    { name = "read", arguments = { path = "notes.txt" } },
    { name = "edit", arguments = { path = "notes.txt", old = "no such text", new = "x" } },
    { name = "write", arguments = { path = "new.txt", content = "x" } },
]

[[steps]]
text = "Done."
""",
)

HINTED: dict[str, tuple[dict[str, object], str]] = {
    "bash": ({"command": "touch made.txt"}, "--allow 'bash(touch made.txt)'"),
    "bash-two": (
        {"command": "touch made.txt && mkdir sub"},
        "--allow 'bash(touch made.txt)' --allow 'bash(mkdir sub)'",
    ),
    "bash-secret": ({"command": "cat .env"}, "--allow '*(.env)'"),
    "bash-writes": ({"command": "cat notes.txt > 'a b.txt'"}, "--allow '*(a b.txt)'"),
    "bash-quoted": ({"command": "touch 'a b.txt'"}, "--allow 'bash(touch *)'"),
    "bash-unknown": ({"command": "$X"}, ""),
    "read": ({"path": ".env"}, "--allow 'read(.env)'"),
    "read-outside": ({"path": "/etc/hostname"}, "--allow 'read(/etc/hostname)'"),
    "write": ({"path": "new/it's.txt", "content": "x"}, """--allow 'write(new/it'"'"'s.txt)'"""),
    "write-odd": ({"path": "a[1].txt", "content": "x"}, "--allow write"),
}
HINTS = [
    Script(
        name=f"hinted-{name}",
        title=name,
        steps=(
            ScriptedStep(calls=(ScriptedCall(name=name.partition("-")[0], arguments=arguments),)),
            ScriptedStep(text="It said: {result}"),
        ),
    )
    for name, (arguments, _) in HINTED.items()
]


@pytest.fixture(scope="module")
def ruled_lab() -> Iterator[Lab]:
    with running_lab([TOUCHES, EDITS, LOOKS, *HINTS]) as lab:
        yield lab


@pytest.fixture
def lab(ruled_lab: Lab) -> Lab:
    ruled_lab.reset()
    return ruled_lab


def denied(cli: Cli, lab: Lab, name: str, *args: str) -> list[str]:
    """The names of the calls that were not allowed to run."""
    ran = cli("run", "Go.", "--json", *args, *at(lab, name))
    assert ran.code in (0, NOTHING_CHANGED)
    return [one["name"] for one in ran.events()[-1]["denied"]]


def allowing(
    text: str,
    *,
    tool: str = "*",
    effect: str | None = None,
    path: str | None = None,
    command: tuple[str, ...] | None = None,
) -> PermissionRule:
    where = f"--allow {text}"
    return PermissionRule(
        verdict="allow", tool=tool, effect=effect, path=path, command=command, source="command line", where=where
    )


def test_allow_takes_effects_and_patterns() -> None:
    """A command's words, a path's glob; what is neither is refused with what there is."""
    push, edit = "bash(git push *)", "edit(src/**)"
    assert allowed_rules("write") == (allowing("write", effect="write"),)
    assert allowed_rules("bash") == (allowing("bash", effect="execute"),)
    assert allowed_rules(push) == (allowing(push, tool="bash", command=("git", "push", "*")),)
    assert allowed_rules(edit) == (allowing(edit, tool="edit", path="src/**"),)
    for text in ("rm", "bash()", "bash(a; b)", "edit(../x)", "bash(git"):
        with pytest.raises(CallerError, match=r"pattern|command|path"):
            allowed_rules(text)


def test_a_rule_about_no_tool_is_refused_before_anything_is_sent(cli: Cli, lab: Lab, tmp_path: Path) -> None:
    """On the command line and in a file of settings, with the place and the nearest name (issue 13, 10)."""
    ran = cli("run", "Go.", "--allow", "bsh(touch *)", *at(lab, "touches"))
    assert ran.code == 2 and "--allow bsh(touch *): there is no tool `bsh`; did you mean `bash`?" in ran.err
    own = tmp_path / "config" / "turnwise" / "turnwise.toml"
    own.parent.mkdir(parents=True)
    own.write_text('[permissions]\nrules = [{ deny = "wriet", path = "customers/**" }]\n')
    ran = cli("run", "Go.", *at(lab, "touches"))
    assert (
        ran.code == 2 and f"`{own}`: `permissions.rules[0]`: there is no tool `wriet`; did you mean `write`?" in ran.err
    )
    assert lab.count() == 0


def test_a_pattern_allows_what_it_names_and_no_more(cli: Cli, lab: Lab, folder: Path) -> None:
    """The other call is denied beside it."""
    assert denied(cli, lab, "edits", "--allow", "edit(notes.txt)") == ["edit"]
    assert (folder / "notes.txt").read_text() == "status: done\n"
    assert (folder / "todo.txt").read_text() == "nothing\n"
    assert denied(cli, lab, "touches", "--allow", "bash(touch *)") == []
    assert (folder / "made.txt").exists()


@pytest.mark.parametrize("name", HINTED)
def test_what_a_denial_says_lets_the_call_run(cli: Cli, lab: Lab, folder: Path, name: str) -> None:
    """The very options, as a shell takes them; where no option would, only a terminal is spoken of."""
    options = HINTED[name][1]
    (folder / ".env").write_text("KEY=1\n")
    told = cli("run", "Go.", *at(lab, f"hinted-{name}")).err
    how = f"run turnwise again {f'with `{options}`, or ' if options else ''}at a "
    assert f"there to be asked. To allow it: {how}" in " ".join(told.split())
    if options:
        assert denied(cli, lab, f"hinted-{name}", *shlex.split(options)) == []


def test_the_users_file_allows_and_a_projects_only_denies(cli: Cli, lab: Lab, folder: Path, tmp_path: Path) -> None:
    """A repository grants itself nothing; `--allow` without a pattern leaves what a pattern denies."""
    own = tmp_path / "config" / "turnwise" / "turnwise.toml"
    own.parent.mkdir(parents=True)
    allowing = "[permissions]\nrules = [{ allow = 'bash', command = 'touch *' }]\n"
    (folder / "turnwise.toml").write_text(allowing)
    assert denied(cli, lab, "touches") == ["bash"]
    own.write_text(allowing)
    (folder / "turnwise.toml").unlink()
    assert denied(cli, lab, "touches") == []
    (folder / "turnwise.toml").write_text("[permissions]\nrules = [{ deny = 'bash', command = 'touch *' }]\n")
    assert denied(cli, lab, "touches", "--allow", "bash") == ["bash"]
    (folder / "turnwise.toml").write_text("[permissions]\nrules = [{ alow = 'bash' }]\n")
    ran = cli("run", "Go.", *at(lab, "touches"))
    assert ran.code == 2 and "`alow` is no key of a rule" in ran.err


def test_hooks_of_the_users_file_run(cli: Cli, lab: Lab, folder: Path, tmp_path: Path) -> None:
    """One that denies by its exit code is obeyed, in what the model reads too; a project's are refused."""
    own = tmp_path / "config" / "turnwise" / "turnwise.toml"
    own.parent.mkdir(parents=True)
    hooks = '[[hooks]]\npoint = "before_tool"\ncommand = ["sh", "-c", "echo not today; exit 2"]\ntools = "bash"\n'
    own.write_text(hooks)
    ran = cli("run", "Go.", "--allow", "bash", *at(lab, "touches"))
    assert ran.code == 0 and "Denied by the hook `sh`: not today" in ran.err
    assert not (folder / "made.txt").exists()
    (folder / "turnwise.toml").write_text(hooks)
    assert "a project's file brings no hooks" in cli("run", "Go.", *at(lab, "touches")).err


def test_how_commands_run_is_said_once_before_the_first(cli: Cli, lab: Lab) -> None:
    """Without a sandbox in capitals; where none runs nothing is said."""
    ran = cli("run", "Go.", "--allow", "bash", "--no-sandbox", *at(lab, "touches"))
    assert ran.err.startswith("commands run WITHOUT a sandbox: ") and ran.err.count("commands run ") == 1
    assert ran.err.index("commands run ") < ran.err.index("→ bash")
    network = cli("run", "Go.", "--allow", "bash", "--network", *at(lab, "touches")).err
    assert "with network" in network or "WITHOUT a sandbox" in network
    assert "commands run " not in cli("run", "Go.", *at(lab, "plain-answer")).err
    notes = [one for one in cli("run", "Go.", "--json", *at(lab, "touches")).events() if one["event"] == "note"]
    assert notes == []


def ask(id: str, *, kind: Literal["approval", "question"] = "approval") -> OneAsk:
    return OneAsk(call=ToolCall(id=id, name="bash", arguments="{}"), arguments="{}", subject=f"s{id}", kind=kind)


def test_pending_calls_are_answered_by_id_or_all() -> None:
    """What was named by id stands over `all`; each answer is for what was shown."""
    allow_a = Approval(call_id="a", verdict="allow", subject="sa")
    deny_b = Approval(call_id="b", verdict="deny", subject="sb")
    asks = [ask("a"), ask("b")]
    shown_a, shown_all = f"a@{mark_of(asks[:1])}", f"all@{mark_of(asks)}"
    assert decide(asks, approve=[shown_all], deny=["b"], show=str) == (allow_a, deny_b)
    assert decide(asks, approve=[shown_a], deny=["all"], show=str) == (allow_a, deny_b)
    assert decide(asks, approve=[shown_a], deny=[], show=str) == (allow_a,)


def test_an_id_is_accepted_by_its_beginning() -> None:
    """Proves (issue 46): with its mark for `--approve`, alone for `--deny`; where several ids begin so, they are named."""
    asks = [ask("call_1ab"), ask("call_1cd")]
    mark = mark_of(asks[:1])
    answers = decide(asks, approve=[f"call_1a@{mark}"], deny=["call_1c"], show=str)
    assert [(one.call_id, one.verdict) for one in answers] == [("call_1ab", "allow"), ("call_1cd", "deny")]
    for options in ({"approve": [f"call_1@{mark}"], "deny": []}, {"approve": [], "deny": ["call_1"]}):
        with pytest.raises(CallerError, match="`call_1`: several ids begin so: call_1ab, call_1cd"):
            decide(asks, **options, show=str)


def test_nothing_is_allowed_by_a_command_that_was_not_shown() -> None:
    """Proves (issue 39, 3): an id alone, `all` alone, or the mark of other contents allows nothing; each is shown whole first."""
    long = "".join([f"line {number}; " for number in range(3001)])
    before = [ask("a"), ask("b")]
    now = [msgspec.structs.replace(before[0], arguments=long, digest="other"), before[1]]
    for given in ("a", "all", f"a@{mark_of(before[:1])}", f"all@{mark_of(before)}"):
        lines: list[str] = []
        with pytest.raises(CallerError, match="nothing was allowed"):
            decide(now, approve=[given], deny=[], show=lines.append)
        shown = "\n".join(lines)
        assert long in shown and f"a@{mark_of(now[:1])}  bash" in shown
    assert decide(now, approve=[], deny=["a"], show=str)[0].verdict == "deny"


def test_a_reply_is_for_a_question_that_was_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Proves (issue 39, 3): an id alone answered whatever was asked under it by then; with the mark of another question too."""
    texts = [f'{{"question": "Delete {what}?"}}' for what in ("the copy", "аll of it")]
    before, now = (msgspec.structs.replace(ask("q", kind="question"), arguments=text, subject=text) for text in texts)
    for given in ("q", f"q@{mark_of([before])}"):
        with pytest.raises(CallerError, match="nothing was answered: the question"):
            answers_of([now], approve=[], deny=[], because="", reply=[(given, "yes")])
        shown = capsys.readouterr().err
        assert f'q@{mark_of([now])}  bash {{"question": "Delete <U+0430>ll of it?"}}' in shown
        assert "confusable: `<U+0430>ll` reads as `all` and mixes Cyrillic and Latin letters" in shown
    (answer,) = answers_of([now], approve=[], deny=[], because="", reply=[(f"q@{mark_of([now])}", "yes")])
    assert (answer.call_id, answer.verdict, answer.text) == ("q", "allow", "yes")


def test_status_shows_the_mark_of_each_ask_and_words_that_look_like_others() -> None:
    """Proves (issue 39, 3): `cаt` with a Cyrillic letter stood there as it came, and a question had no mark."""
    shown = ShownAsk(
        id="a", kind="approval", tool="bash", arguments='{"command": "cаt x"}', subject="cаt x", why="cаt x is asked about",
        options=(), answer="", mark="0123456789ab",
    )  # fmt: skip
    question = msgspec.structs.replace(
        shown, id="q", kind="question", subject="Which cаt is it", options=("cаt",), why=""
    )
    turn = TurnStatus(
        session="s", status="waiting", agent="a", priority=0, needs=(), worker="", created=0.0, finished=None,
        stop_reason=None, complete=None, cancel=False, problem=None, waits_for=A_PERSON, asks=(shown, question),
    )  # fmt: skip
    text = "\n".join(asks_said(turn))
    assert "cаt" not in text and text.count("c<U+0430>t") == 6
    assert text.count("confusable: `c<U+0430>t` looks like the command `cat` and mixes") == 2
    assert "    a@0123456789ab  bash" in text and "    q@0123456789ab  asks: Which c<U+0430>t is it" in text
    alone = "\n".join(asks_said(msgspec.structs.replace(turn, asks=(question,))))
    assert 'turnwise answer s --reply q@0123456789ab "TEXT"' in alone


@pytest.mark.parametrize(
    ("asks", "approve", "deny", "said"),
    [
        ([], ["all"], [], "nothing of this session waits"),
        (["a"], ["b"], [], "--approve `b`: no such call waits; there are a, or `all`"),
        (["a"], ["a"], ["a"], "`a` is approved and denied"),
        (["q"], ["all"], [], "`q` is a question, which needs an answer"),
    ],
)
def test_what_waits_for_nothing_is_not_answered(
    asks: list[str], approve: list[str], deny: list[str], said: str
) -> None:
    """With what to do instead."""
    known = [ask(id, kind="question" if id == "q" else "approval") for id in asks]
    with pytest.raises(CallerError) as raised:
        decide(known, approve=approve, deny=deny, show=str)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("name", "allow", "code", "last"),
    [
        ("looks", "edit(notes.txt)", NOTHING_CHANGED, "not run, as nobody is there to be asked: write\n"),
        ("looks", "write(new.txt)", 0, "not run, as nobody is there to be asked: edit\n"),
        ("edits", "edit(notes.txt)", 0, "not run, as nobody is there to be asked: edit\n"),
        ("edits", "*(none)", NOTHING_CHANGED, "not run, as nobody is there to be asked: edit (2 times)\n"),
        ("touches", "bash", 0, ""),
        ("touches", "*(none)", NOTHING_CHANGED, "not run, as nobody is there to be asked: bash\n"),
    ],
)
def test_a_run_that_was_denied_its_calls_and_changed_nothing_has_its_own_exit_code(
    cli: Cli, lab: Lab, folder: Path, name: str, allow: str, code: int, last: str
) -> None:
    """Issue 40: a job saw 0 though nothing was done. Reading, looking with a command and an edit that failed change nothing."""
    (folder / "todo.txt").write_text("nothing\n")
    ran = cli("run", "Go.", "--allow", allow, *at(lab, name))
    assert (ran.code, ran.err.endswith(last)) == (code, True), ran.err
    assert cli("run", "Go.", "--json", *at(lab, name)).events()[-1]["exit_code"] == NOTHING_CHANGED


def test_what_a_rule_denies_stands_in_the_last_line_too(cli: Cli, lab: Lab, folder: Path) -> None:
    """Issue 40: the line told only of calls that nobody could be asked about."""
    (folder / "turnwise.toml").write_text('[permissions]\nrules = [{ deny = "edit" }]\n')
    ran = cli("run", "Go.", *at(lab, "edits"))
    assert (ran.code, ran.err.endswith("\ndenied: edit (2 times)\n")) == (NOTHING_CHANGED, True), ran.err


def test_a_projects_file_that_chooses_the_model_is_named_first(
    cli: Cli, lab: Lab, folder: Path, own_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 40: a cloned folder had the prompt sent to another provider, without a word. What changes nothing has no line."""
    monkeypatch.setenv("TURNWISE_BASE_URL", f"{lab.url}/v1?key=hidden")
    file = folder / "turnwise.toml"
    file.write_text('model = "openai_chat:edits"\n')
    own_file.write_text('model = "openai_chat:looks"\n')
    at_lab = f"at {lab.url}/v1"
    line = f"{file}, a file of the project, chooses the model: openai_chat:edits {at_lab}, in place of openai_chat:looks {at_lab}"
    assert cli("run", "Go.", "--json").events()[0] == {"event": "note", "text": line}
    assert cli("run", "Go.").err.splitlines()[0] == line
    own_file.write_text("")
    assert f"{file}, a file of the project, chooses the model: openai_chat:edits {at_lab}\n" in cli("run", "Go.").err
    own_file.write_text('model = "openai_chat:edits"\n')
    assert "of the project" not in cli("run", "Go.").err
    own_file.write_text("")
    assert "of the project" not in cli("run", "Go.", *at(lab, "looks")).err, "the command line's word"
