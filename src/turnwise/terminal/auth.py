"""`turnwise auth`: keys of providers that turnwise keeps, and the question for one at a terminal."""

import os
import re
import sys
from collections.abc import Callable

import click

from turnwise.agent.models import find_profile
from turnwise.base.threads import run_to_end
from turnwise.coding_agent.asked_calls import is_attended
from turnwise.coding_agent.provider_keys import (
    TriedKey,
    from_home,
    is_like_key,
    owner_named,
    place_said,
    read_key,
    store_key,
    try_key,
    unencrypted_line,
    variables_set,
)
from turnwise.coding_agent.text import clean_row
from turnwise.errors import CallerError
from turnwise.settings.kept_keys import MOST_KEY_CHARS, KeptKey, drop_key, kept_keys, keys_file
from turnwise.terminal.command_options import complete_providers, json_option
from turnwise.terminal.exit_codes import CANCELLED
from turnwise.terminal.failures import FAILED, Failure, as_one_line, write_ascii_json
from turnwise.terminal.last_line import EndsWithLine
from turnwise.terminal.pager import PromptLeft, PromptStopped
from turnwise.terminal.rows import say
from turnwise.terminal.terminal import Terminal
from turnwise.terminal.usage import Column, fitting, lines_of_table, width_of
from turnwise.vocab.wording import in_ticks
from turnwise.wire.profiles import Profile, builtin_profiles

PASTE = "paste the key (it is not shown): "
PASTE_AT = "it wants a key: paste it (it is not shown), or Enter for none: "
PLAIN_URL = re.compile(r"https?://[^?@]+")
WHOSE = "whose key is it? (a provider, Tab completes): "

AUTH_EPILOG = """\b
Examples:
  turnwise auth add
  turnwise auth add anthropic
  pass show openai | turnwise auth add openai
  turnwise auth list
  turnwise auth remove openai

A stored key goes to its provider's own scheme, host and port alone, whatever a project's file, --base-url, TURNWISE_BASE_URL, a
redirect or a proxy says. It is in no environment, so no command, hook or MCP server is given it. A variable of the provider that
is set comes first. Servers (`turnwise gateway`, `turnwise worker`) and the Python library read no stored keys."""

ADD_EPILOG = """\b
Examples:
  turnwise auth add
  turnwise auth add openai
  turnwise auth add https://llm.example.com/v1
  pass show openai | turnwise auth add openai
  turnwise auth add --file groq < key.txt

\b
Exit codes: 0 kept; 1 the provider refused it, or could not be asked; 2 wrong use; 130 you left."""


class TakesNoKey(EndsWithLine):
    """A command line with a key on it: `ps` and the shell's history show it already, so it is refused, and not repeated."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = [word for word in args if not word.startswith("-") and not PLAIN_URL.fullmatch(word)]
        if len(words) > 1 or any(map(is_like_key, words)):
            raise click.UsageError(
                "no key is taken from the command line, where `ps` and the history of your shell show it: leave it out and "
                "paste it when you are asked, or pipe it in; make a new key if this one was real",
                ctx=ctx,
            )
        return super().parse_args(ctx, args)


@click.group(epilog=AUTH_EPILOG)
def auth_command() -> None:
    """Store a provider's key, list and remove stored keys."""


@auth_command.command("add", cls=TakesNoKey, epilog=ADD_EPILOG)
@click.argument("provider", required=False, shell_complete=complete_providers)
@click.option("--file", "in_file", is_flag=True, help="Keep it in turnwise's own file, even if a keyring is there.")
@click.option("--untried", is_flag=True, help="Keep it without asking the provider.")
@json_option("One JSON object: the provider, where the key is kept, and where it goes.")
def add_key(provider: str | None, in_file: bool, untried: bool, as_json: bool) -> None:
    """Store the key of PROVIDER, or of the server at a URL: paste it when you are asked, or pipe it in. It is tried with one free
    request (the list of models) and kept if the provider does not refuse it: in the system's keyring, or in a file that only you
    can read.
    """
    with as_one_line():
        named = None if provider is None else owner_named(provider)
        if named is not None and (line := unencrypted_line(named)):
            say(clean_row(line))
        terminal = Terminal() if is_attended() else None
        if terminal is None:
            said, key = read_key(sys.stdin.read(2 * MOST_KEY_CHARS))
        else:
            said, key = read_key(_line(terminal, PASTE, hides=lambda _: True))
            said = said or named or ask_whose(terminal)
        if (whose := named or said) is None:
            raise CallerError("whose key is it? Its beginning does not say: `turnwise auth add PROVIDER`")
        owner = named or owner_named(whose.name)
        if said is not None and owner.name in builtin_profiles() and owner_named(said.name) != owner:
            raise CallerError(
                f"that is a key of `{said.name}` by its beginning, not of `{owner.name}`: nothing was sent"
            )
        tried = TriedKey(why="--untried") if untried else try_key(owner, key)
        if not untried:
            say(clean_row(tried.said(owner)))
        if tried.refused or (tried.why and not untried and not _keeps_untried(terminal)):
            raise Failure(f"the key of `{owner.name}` was not kept", exit_code=FAILED)
        kept, lines = store_key(owner, key, env=os.environ, in_file=in_file)
        for line in lines:
            say(clean_row(line))
        if as_json:
            write_ascii_json({**_told(owner.name, kept), "models": None if tried.why else len(tried.models)})


def ask_key(terminal: Terminal, *, typed: str = "") -> tuple[Profile, str, TriedKey] | None:
    """A key that the person pastes, or that they have `typed` already, with its provider, tried. None: it is not to be kept.
    Raises CallerError for what is no key, and for one that was refused."""
    profile, key = read_key(typed or _line(terminal, PASTE, hides=lambda _: True))
    owner = owner_named((profile or ask_whose(terminal)).name)
    tried = try_key(owner, key)
    if tried.refused:
        raise CallerError(f"{tried.said(owner)}; it was not kept")
    terminal.say(clean_row(tried.said(owner)))
    return (owner, key, tried) if not tried.why or _keeps_untried(terminal) else None


def ask_key_at(terminal: Terminal, base_url: str) -> list[str]:
    """A key that the person pastes for the server at this address, tried there and kept: the lines that say so. Empty: they have
    none. Raises CallerError for what is no key, and for one that was refused."""
    owner = owner_named(base_url)
    if line := unencrypted_line(owner):
        terminal.say(clean_row(line))
    if not (typed := _line(terminal, PASTE_AT, hides=lambda _: True)):
        return []
    _, key = read_key(typed)
    if (tried := try_key(owner, key)).refused:
        raise CallerError(f"{tried.said(owner)}; it was not kept")
    return [tried.said(owner), *store_key(owner, key, env=os.environ)[1]]


def ask_whose(terminal: Terminal) -> Profile:
    """The provider that the person names, asked again for a name that is not one: their key is not thrown away. Raises
    CallerError if they name none."""
    from turnwise.terminal.words import model_completer

    names = model_completer(lambda begun: [name for name in builtin_profiles() if name.startswith(begun)])
    while named := _line(terminal, WHOSE, completer=names).partition(":")[0]:
        try:
            return find_profile(named)
        except CallerError as error:
            terminal.say(clean_row(str(error)))
    raise CallerError("whose key it is was not said: it was not kept")


def _keeps_untried(terminal: Terminal | None) -> bool:
    if terminal is None:
        say("to keep it all the same: --untried")
        return False
    return run_to_end(terminal.says_yes(lambda: "keep it all the same? [y/N] "))


def _line(
    terminal: Terminal, question: str, *, hides: Callable[[str], bool] | None = None, completer: object = None
) -> str:
    try:
        return run_to_end(terminal.line(lambda: question, hides=hides, completer=completer)).strip()  # pyright: ignore[reportArgumentType]
    except PromptStopped:
        raise SystemExit(CANCELLED) from None
    except PromptLeft:
        raise CallerError("no key was given") from None


@auth_command.command("list", cls=EndsWithLine)
@json_option("One JSON object: the keys, and the file that says where they are.")
def list_keys(as_json: bool) -> None:
    """List the stored keys: the provider, where the key is kept, where it goes, and its last characters."""
    with as_one_line():
        found = kept_keys(os.environ)
        file = str(keys_file(os.environ))
        if as_json:
            write_ascii_json({"keys": [_told(name, kept) for name, kept in sorted(found.items())], "file": file})
            return
        if not found:
            say("no key is stored: `turnwise auth add` stores one", stream=sys.stdout)
            return
        names = sorted(found)
        width = width_of(sys.stdout)
        column = Column(name="provider", cells=names)
        columns = [
            Column(name="kept in", cells=[_place(found[name]) for name in names], align="left"),
            Column(name="goes to", cells=[found[name].origin for name in names], align="left"),
            Column(name="key", cells=[f"...{found[name].end}" for name in names], rank=1, align="left"),
        ]
        for line in lines_of_table(column, fitting(column, columns, width=width), width=width, stream=sys.stdout):
            click.echo(line)
        for name in names:
            if variable := _set_now(name):
                say(f"{variable} is set, and comes before the stored key of `{name}`", stream=sys.stdout)


@auth_command.command("remove", cls=TakesNoKey)
@click.argument("provider", shell_complete=complete_providers)
@json_option("One JSON object: the provider, and where its key was.")
def remove_key(provider: str, as_json: bool) -> None:
    """Remove the stored key of PROVIDER. At the provider it stays valid until you revoke it there."""
    with as_one_line():
        found = kept_keys(os.environ)
        name = provider if provider in found else owner_named(provider).name  # a URL is found by its origin
        if name not in found:
            raise CallerError(f"no key of `{name}` is stored; there are {in_ticks(sorted(found)) or 'none'}")
        why = drop_key(name, env=os.environ)
        say(f"the key of `{name}` is removed from {place_said(found[name], env=os.environ)}")
        if why:
            say(clean_row(f"its entry there may still be left: {why}; remove `{name} at {found[name].origin}` there"))
        if as_json:
            write_ascii_json(_told(name, found[name]))


def _place(kept: KeptKey) -> str:
    return "the keyring" if kept.place == "keyring" else from_home(str(keys_file(os.environ)))


def _set_now(name: str) -> str:
    try:
        return variables_set(find_profile(name), env=os.environ)
    except CallerError:  # a row of the user's that is gone
        return ""


def _told(name: str, kept: KeptKey) -> dict[str, object]:
    return {
        "provider": name,
        "kept_in": kept.place,
        "goes_to": kept.origin,
        "ends_with": kept.end,
        "comes_first": _set_now(name) or None,
    }
