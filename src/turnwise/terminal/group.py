"""`turnwise`: the command group, and a prompt in the place of a command (`turnwise "explain this"`).

Subcommands are imported when they are used, so that `--version` stays quick.
"""

import difflib
import importlib
import io
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import click

from turnwise._version import __version__
from turnwise.coding_agent.text import clean
from turnwise.terminal.exit_codes import CANCELLED, EXIT_CODES
from turnwise.terminal.failures import BUG, FAILED, NO_TEXT, USAGE, Failure, bug_line, complain
from turnwise.vocab.file_names import is_text

# A prompt in the place of a command, as other agents take it: `turnwise "explain this"`, `turnwise -p "explain this"`.


PROMPT_OPTIONS = ("-p", "--print", "--prompt")  # print the answer and end: `run`
OWN = ("-h", "--help", "-V", "--version")  # options of `turnwise` itself
MOST = 200  # characters of the typed text that a hint repeats
# What people type who know other programs, and what it is here. A model that is sent such a word can do nothing with it.
ELSEWHERE = {
    "help": "--help",
    "version": "--version",
    "login": "auth add",
    "logout": "auth remove",
    "setup": "auth add",
    "key": "auth add",
    "exec": "run",
    "cost": "usage",
    "config": "doctor",
    "continue": "--continue",
    "history": "sessions list",
}
_MODES = "--mode edits changes files unasked; Shift-Tab in a session leads to sandbox mode, in which commands run unasked, too"
OPTIONS_ELSEWHERE = {
    **dict.fromkeys(("-r", "--resume"), "--continue goes on with the last session here, --session ID with any"),
    **dict.fromkeys(("--dangerously-skip-permissions", "--yolo", "--full-auto", "--permission-mode"), _MODES),
    **dict.fromkeys(("--allowedTools", "--allowed-tools"), "--allow 'bash(git push *)' allows a call by a pattern"),
    "--output-format": "--json prints JSON",
    "--max-turns": "--max-steps N sets how many steps a turn may take",
}


def prompt_line(command: click.Command, typed: Sequence[str]) -> str:
    """The line that was meant, `turnwise -m M "hello"`: the options as they were typed, then all other words as one prompt."""
    options, words, _ = _told_apart(command, typed)
    line = " ".join(
        ["turnwise", *([shlex.join(options)] if options else []), clean(quoted(" ".join(words))) if words else '"..."']
    )
    return line if len(line) <= MOST else 'turnwise "..."'


def quoted(text: str) -> str:
    """The text in quotes for a shell, even if it needs none."""
    safe = shlex.quote(text)
    return f'"{text}"' if safe == text else safe


def _told_apart(command: click.Command, typed: Sequence[str]) -> tuple[list[str], list[str], bool]:
    """The options with their values; the words that belong to no option; and whether the answer is printed (`-p`)."""
    takes_value = {
        name: isinstance(param, click.Option) and not param.is_flag and not param.count
        for param in command.params
        for name in (*param.opts, *param.secondary_opts)
    }
    options: list[str] = []
    words: list[str] = []
    prints = False
    left = iter(typed)
    for word in left:
        glued = next((name for name in ("--print=", "--prompt=", "-p") if word.startswith(name)), "")
        if word == "--":
            words += left
        elif word in PROMPT_OPTIONS or glued:
            prints = True
            words += [] if word in PROMPT_OPTIONS else [word.removeprefix(glued)]
        elif not word.startswith("-") or word == "-":
            words.append(word)
        else:
            options.append(word)
            if takes_value.get(word) and (value := next(left, None)) is not None:
                options.append(value)
    return options, words, prints


COMMANDS = {
    "chat": ("turnwise.terminal.run", "Talk with a model that works in this folder; `turnwise` alone does it."),
    "run": ("turnwise.terminal.run", "Give a prompt; the model works in this folder and answers."),
    "resume": ("turnwise.terminal.run", "Continue turns whose process died."),
    "decode": ("turnwise.terminal.decode", "Say what recorded provider streams hold."),
    "undo": ("turnwise.terminal.run", "Take back what the last turn changed in files."),
    "sessions": ("turnwise.terminal.sessions", "List, show, fork and delete the sessions kept so far."),
    "replay": ("turnwise.terminal.run", "Run a session again from its journal, without any request."),
    "usage": ("turnwise.terminal.usage", "Show how many requests were sent, what for, and what they cost."),
    "look": ("turnwise.terminal.look", "Look at your usage in a browser."),
    "auth": ("turnwise.terminal.auth", "Store a provider's key; list and remove stored keys."),
    "models": ("turnwise.terminal.check", "List models: limits, prices, and what a server offers."),
    "compare": ("turnwise.terminal.compare", "Give a prompt to several models, side by side."),
    "doctor": ("turnwise.terminal.check", "Check what a run needs, and say what to do."),
    "check": ("turnwise.terminal.check", "Ask an endpoint a dozen small things: what works, what turnwise heals."),
    "mcp": ("turnwise.terminal.mcp", "List, add, remove and test MCP servers, or be one."),
    "gateway": ("turnwise.terminal.gateway", "Serve your models to any client; broken streams arrive whole."),
    "acp": ("turnwise.terminal.mcp", "Serve an editor that speaks the Agent Client Protocol."),
    "worker": ("turnwise.terminal.worker", "Run the turns that wait in a database, with the agents you name."),
    "submit": ("turnwise.terminal.databases", "Have a worker run a turn."),
    "status": ("turnwise.terminal.status", "Show the turns that were submitted, and what they wait for."),
    "answer": ("turnwise.terminal.databases", "Answer what a turn asks that a worker runs, from any machine."),
    "cancel": ("turnwise.terminal.databases", "End the turns of a session, wherever they run."),
    "retry": ("turnwise.terminal.databases", "Run the failed turn of a session again."),
    "lab": ("turnwise.terminal.lab", "Serve a scripted provider on this machine."),
    "completion": (
        "turnwise.terminal.command_options",
        "Print what a shell needs to complete turnwise's words by Tab.",
    ),
    "demo": ("turnwise.terminal.lab", "Show the five incidents turnwise comes from, without any key."),
}

EPILOG = f"""\b
Examples:
  turnwise demo
  turnwise auth add
  turnwise "fix the failing test"
  turnwise -p "what does this project do?"
  turnwise doctor
  turnwise models anthropic
  turnwise -m openai:gpt-6.1-sol
  turnwise run -m openai:gpt-6.1-sol "what does this project do?"
  turnwise run -m anthropic:claude-sonnet-5 --allow write "fix the typo in README.md"
  turnwise run -m ollama:qwen3:8b --json "list the files" | tail -1
  turnwise decode recorded.sse --family openai_chat

\b
Exit codes of `run` (other commands have theirs in their --help):
{EXIT_CODES}"""


# How similar a word must be to a command if others follow it: `what does this do` was a prompt. A single word needs less (0.6).
ALIKE = 0.8


class LazyGroup(click.Group):
    """Knows its commands by name; imports a command when it runs or shows its own help."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """At a terminal, `turnwise` without a command is `chat`. Options without a command, and a prompt, belong to it; with `-p`
        to `run`."""
        if not args and (piped := _piped()):
            ctx.fail(f"standard input is {piped}: `turnwise -p` takes it as the prompt")
        if args and not ctx.resilient_parsing:
            args = self._with_command(args, ctx=ctx)
        elif not args and _is_terminal():
            args = ["chat"]
        return super().parse_args(ctx, args)

    def _with_command(self, args: list[str], *, ctx: click.Context) -> list[str]:
        if (args[0] in COMMANDS and args[0] not in ("chat", "run")) or args[0] in OWN:
            return args
        if other := next(
            ((name, said) for word in args if (said := OPTIONS_ELSEWHERE.get(name := word.partition("=")[0]))), None
        ):
            ctx.fail(f"no option `{other[0]}`: {other[1]}")
        is_named = args[0] in COMMANDS
        run = self.get_command(ctx, "run")
        assert run is not None
        options, words, prints = _told_apart(run, args[is_named:])
        if prints:
            piped = ["-"] if not words and _piped() else []
            return ["run", *options, "--", *words, *piped]
        if is_named:
            return args
        if not words:
            return ["chat", *args] if self._is_of_chat(args[0], ctx=ctx) else args
        if wrong := self._not_meant(words, run=run, args=args):
            ctx.fail(wrong)
        return ["chat", *options, "--", *words]

    def _is_of_chat(self, word: str, *, ctx: click.Context) -> bool:
        if not word.startswith("-"):
            return False
        chat = self.get_command(ctx, "chat")
        assert chat is not None
        names = {name for param in chat.params for name in param.opts}
        return word.partition("=")[0] in names or word[:2] in names

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found = getattr(importlib.import_module(COMMANDS[cmd_name][0]), f"{cmd_name}_command")
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from turnwise.terminal.last_line import told_if_interrupted

        with told_if_interrupted(args):
            return super().resolve_command(ctx, args)

    def _not_meant(self, words: list[str], *, run: click.Command, args: list[str]) -> str:
        """Why the words are sent to nobody; empty: they are a prompt. A single word may be a misspelt command. Several want
        quotes: a shell has taken `*` and `'` from them, and a mistyped command with its words would be paid for."""
        word, *more = words
        if not is_text("".join(words)):
            return NO_TEXT
        from turnwise.coding_agent.provider_keys import is_like_key

        if any(map(is_like_key, words)):
            return "that looks like a key, and was sent to nobody: `turnwise auth add` asks for it, without showing it"
        names = [*COMMANDS, *ELSEWHERE]
        slips = [word] if word in ELSEWHERE else [name for name in names if sorted(name) == sorted(word)]
        slips += difflib.get_close_matches(word, ELSEWHERE, n=1, cutoff=ALIKE)
        slips += difflib.get_close_matches(word, COMMANDS, n=1, cutoff=ALIKE if more else 0.6)
        if " " not in word and (near := next((ELSEWHERE.get(slip, slip) for slip in slips), "")):
            other = "" if more else f" If it is a prompt: turnwise -p {clean(quoted(word))}"
            return f"no command `{clean(word)}`; did you mean `{near}`?{other}"
        if words == ["-"]:
            return "`-` is what is piped in: `turnwise -p -` takes it as the prompt"
        return f"no command `{clean(word)}`; put a prompt in quotes: {prompt_line(run, args)}" if more else ""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


def _piped() -> str:
    from turnwise.coding_agent.asked_calls import what_is_piped

    return what_is_piped(sys.stdin)


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()


@click.group(
    cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, "-V", "--version", prog_name="turnwise", message="%(prog)s %(version)s")
def group() -> None:
    """The tool loop of LLM agents: every call whole, one step one request, and a turn that ends with an answer."""


def run(args: Sequence[str] | None) -> int:
    """Run `turnwise ARGS`; return the exit code. Whatever happens, there is at most one error line.

    TURNWISE_TRACEBACK=1 shows where a bug of turnwise is.
    """
    _open_standard_streams()
    code = FAILED
    try:
        code = _invoke(args)
        sys.stdout.flush()
    except BrokenPipeError:
        _mute(sys.stdout)  # the reader of our output has gone (`| head`): nobody reads a message
    except OSError as error:
        _mute(sys.stdout)
        where = f" (`{error.filename}`)" if error.filename else ""
        complain(f"input or output failed: {error.strerror or error}{where}")
    try:
        sys.stderr.flush()
    except OSError:  # an unwritten message changes nothing: Python would end with 120
        _mute(sys.stderr)
    return code


def _invoke(args: Sequence[str] | None) -> int:
    try:
        group.main(args, prog_name="turnwise", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return USAGE
    except Failure as error:
        error.show()
        return error.exit_code
    except click.UsageError as error:
        where = f" (see `{error.ctx.command_path} --help`)" if error.ctx else ""
        complain(error.format_message().rstrip(".") + where)
        return error.exit_code
    except click.ClickException as error:
        complain(error.format_message())
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return CANCELLED
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else FAILED
    except OSError:
        raise
    except Exception as error:
        if isinstance(error, UnicodeEncodeError) and not is_text(error.object):
            complain(NO_TEXT)
            return USAGE
        if os.environ.get("TURNWISE_TRACEBACK"):
            raise
        complain(f"{bug_line(error)} (TURNWISE_TRACEBACK=1 shows where)")
        return BUG
    return 0


def _open_standard_streams() -> None:
    """Replace standard streams that do not work. A closed stream (`>&-`) is None in Python; a stream that cannot write a
    character (LANG=C) would raise in the middle of an answer. Writing an answer to a closed output raises OSError, because the
    answer is lost."""
    sys.stdin = sys.stdin or Path(os.devnull).open()  # noqa: SIM115 (open until the end)
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _mute(stream: TextIO) -> None:
    """Drop what is in the buffer: it would raise again when Python flushes it at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
