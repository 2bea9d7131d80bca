"""If no model is named: show what was found, read what the person types, and remember their choice."""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import msgspec
from click.core import ParameterSource

from turnwise._version import __version__
from turnwise.agent.formatting import many
from turnwise.agent.models import Ways, find_profile, open_endpoint, read_model
from turnwise.base.threads import run_to_end
from turnwise.coding_agent.choice import ANY_FAMILY, Choice, address_in
from turnwise.coding_agent.model_names import (
    PLACE,
    URL,
    Doubts,
    FoundEndpoints,
    absent_line,
    beginning_with,
    is_listed,
    key_line,
    look_around,
    may_be_chosen,
    meant_said,
    near_name,
    offered_by,
    server_line,
)
from turnwise.coding_agent.options import Given, given_over
from turnwise.coding_agent.provider_keys import from_home, is_like_key, store_key
from turnwise.coding_agent.text import clean_row
from turnwise.errors import CallerError, MissingKey, ProviderFault
from turnwise.settings.catalogue import suggested_models
from turnwise.settings.settings import RunSettings, user_file
from turnwise.settings.user_settings import lines_of, remember_model
from turnwise.terminal.command_options import shared_options
from turnwise.terminal.exit_codes import CANCELLED
from turnwise.terminal.failures import Failure, complain
from turnwise.terminal.pager import PromptLeft, PromptStopped
from turnwise.terminal.terminal import Terminal
from turnwise.vocab import FaultKind
from turnwise.vocab.wording import in_ticks
from turnwise.wire.profiles import Profile, builtin_profiles, profile_at

# What a person types when a model is asked for: a model, an address, both, or a whole line that they have pasted.


AT_THE_PROMPT = Ways(
    base_url=f"type the address, too: `{ANY_FAMILY}:NAME --base-url URL`",
    key="name its variable: `MODEL --api-key-env NAME`",
    kept=True,
)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


class ServerModels(msgspec.Struct, frozen=True, kw_only=True):
    """The models that a server at `base_url` offers, or `why` it has no list. `provider` comes before the names. `wants_key`: it
    has refused a request without one."""

    base_url: str
    provider: str
    names: tuple[str, ...] = ()
    why: str = ""
    wants_key: bool = False

    @property
    def why_said(self) -> str:
        way = "; to store its key: `turnwise auth add URL`; from a variable: `URL --api-key-env NAME`"
        return f"{self.why}{way * self.wants_key}"


def read_typed(text: str, *, given: Given) -> Given:
    """The options with those that were typed: `MODEL`, `URL`, `MODEL --base-url URL`, or a line of a shell that begins with
    `turnwise`. Raises CallerError."""
    try:
        words = shlex.split(text)
    except ValueError:
        raise CallerError("a quote in it is not closed") from None
    words = _without_program(words)
    if words and (place := PLACE.fullmatch(words[0])) and place[1] not in builtin_profiles():
        raise CallerError(f"`{words[0]}` names no provider: if it is an address, type `http://{words[0]}`")
    if words and URL.match(words[0]):
        words = ["--base-url", *words]
    elif words and not words[0].startswith("-"):
        words = ["--model", *words]
    typed = _options_in(words)
    model, base_url = typed.get("model"), typed.get("base_url")
    if not model and not base_url:
        raise CallerError("it names no model: type PROVIDER:NAME, or the URL of a server")
    if model and base_url and ":" not in str(model):
        typed["model"] = f"{provider_at(str(base_url)).name}:{model}"
    return given_over(given, typed)


def _without_program(words: Sequence[str]) -> list[str]:
    from turnwise.terminal.group import COMMANDS

    said = list(words[1:] if words[:1] == ["$"] else words)
    if said and (said[0] == "export" or _ASSIGNMENT.match(said[0])):  # its value may be a key and is not shown
        raise CallerError("a variable is set in the shell: leave with q, set it, and start turnwise again")
    if not said or Path(said[0]).name != "turnwise":
        return said
    del said[0]
    if said[:1] == ["chat"]:
        del said[0]
    if said and said[0] in COMMANDS:
        raise CallerError(f"`turnwise {said[0]}` is for the shell: leave with q, and run it there")
    return said


@click.command()
@shared_options
def _options(**_given: object) -> None:
    """The options that may be typed with a model: those of `turnwise chat`."""


def _options_in(words: Sequence[str]) -> dict[str, object]:
    try:
        context = _options.make_context("turnwise", list(words), help_option_names=["-h", "--help"])
    except click.exceptions.Exit:  # --help has been shown
        raise CallerError("here MODEL, URL or `MODEL --base-url URL` is read") from None
    except click.ClickException as error:
        raise CallerError(error.format_message().rstrip(".")) from None
    return {
        name: value
        for name, value in context.params.items()
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }


def check(given: Given, *, env: Mapping[str, str]) -> None:
    """Raises CallerError if its model is invalid, or if its address or key is missing."""
    named = read_model(given["model"] or "")
    address = given["base_url"] or address_in(env, provider=named.profile.name)
    try:
        open_endpoint(named, base_url=address, api_key_env=given["api_key_env"], env=env, ways=AT_THE_PROMPT)
    except MissingKey:
        names = [given["api_key_env"]] if given["api_key_env"] else named.profile.api_key_env
        wanted = in_ticks(names, between=" or ")
        set_it = f"paste it here, or leave with q, set {wanted}, and start again; or " if names else ""
        raise CallerError(f"`{named.profile.name}` wants a key: {set_it}{AT_THE_PROMPT.key}") from None


def provider_at(base_url: str) -> Profile:
    """The provider that has this address; otherwise any endpoint of the usual family."""
    return profile_at(base_url) or find_profile(ANY_FAMILY)


def list_at(
    base_url: str, *, api_key_env: str | None, env: Mapping[str, str], profile: Profile | None = None
) -> ServerModels:
    """Ask the server at the address for its models; if it does not know that path, below `/v1`. Without `profile`, the address
    decides the profile. Raises CallerError for an invalid address, and for a missing key."""
    profile = profile or provider_at(base_url)
    first = _list_at(base_url, profile=profile, api_key_env=api_key_env, env=env)
    if isinstance(first, ServerModels):
        return first
    if first.fault.kind is FaultKind.NOT_FOUND and re.fullmatch(r"https?://[^/?]+/?", base_url):
        below = _list_at(f"{base_url.rstrip('/')}/v1", profile=profile, api_key_env=api_key_env, env=env)
        if isinstance(below, ServerModels):
            return below
    wants_key = first.fault.kind is FaultKind.AUTH and not api_key_env
    return ServerModels(base_url=base_url, provider=profile.name, why=str(first), wants_key=wants_key)


def _list_at(
    base_url: str, *, profile: Profile, api_key_env: str | None, env: Mapping[str, str]
) -> ServerModels | ProviderFault:
    named = read_model(f"{profile.name}:*")
    endpoint = open_endpoint(named, base_url=base_url, api_key_env=api_key_env, env=env, ways=AT_THE_PROMPT)
    try:
        offered = run_to_end(offered_by(endpoint))
    except ProviderFault as error:
        return error
    names = tuple([model.name for model in offered if may_be_chosen(model.name)])
    why = "" if names else "it lists no model to talk with"
    return ServerModels(base_url=endpoint.base_url, provider=profile.name, names=names, why=why)


def unlisted(given: Given, *, listed: ServerModels) -> str:
    """What to say about a name that is not in the server's list; empty if it is there, or if there is no list."""
    provider, _, name = (given["model"] or "").partition(":")
    is_there = provider == listed.provider and given["base_url"] in (None, listed.base_url)
    if not is_there or not listed.names or is_listed(name, names=listed.names):
        return ""
    return f"`{name}` is not in its list{meant_said(near_name(name, names=listed.names))}"


def check_address(given: Given, *, env: Mapping[str, str]) -> tuple[Given, str]:
    """The options with the address where the server answers (`http://host` -> `http://host/v1`), and what is wrong with them: the
    server gives no list, or the model is not in it. An API without lists is not asked. Raises CallerError as `check`."""
    check(given, env=env)
    profile = read_model(given["model"] or "").profile
    try:
        listed = list_at(given["base_url"] or "", api_key_env=given["api_key_env"], env=env, profile=profile)
    except CallerError:
        return given, ""
    there: Given = {**given, "base_url": listed.base_url}
    where = listed.base_url.partition("?")[0]
    return there, f"{where}: {listed.why_said}" if listed.why else unlisted(there, listed=listed)


def at_listed(given: Given, *, listed: ServerModels) -> Given:
    """A name that was typed below a server's list is one of its models; another provider's name stays as it is."""
    model = given["model"] or ""
    provider = model.partition(":")[0]
    if given["base_url"] or (model not in listed.names and ":" in model and provider in builtin_profiles()):
        return given
    is_own = listed.base_url == find_profile(listed.provider).base_url
    return {**given, "model": f"{listed.provider}:{model}", "base_url": None if is_own else listed.base_url}


MOST_TOLD = 3  # models in the one line
MOST_LISTED = 15  # of a server's list: with the question they fit a terminal of 24 lines
KEY, DEMO, LEAVE = "k", "d", "q"
EMPTY = "paste a key, or type PROVIDER:NAME or a URL; ? shows all that can be typed, q leaves"
HELP = (
    f"  {KEY}              paste a provider's key: it is not shown, tried, and kept",
    "  1, 2, ...      a model of the list",
    "  PROVIDER:NAME  anthropic:claude-sonnet-5, ollama:qwen3:8b; Tab completes it",
    "  URL            http://127.0.0.1:8000/v1: that server is asked for its models",
    "  MODEL --base-url URL      both, or a whole line with `turnwise -m`",
    "  MODEL --api-key-env NAME  if the key is in another variable than the usual one",
    f"  {DEMO}              `turnwise demo`: what it is for, without a key",
    f"  {LEAVE}              leave; so do exit, quit and Ctrl-D",
)
LEFT = (
    "no model was chosen: start again to choose, or give one: `turnwise -m PROVIDER:NAME` (`turnwise doctor` says what is "
    "missing)"
)
NOTHING = """To begin, do one of these:
  paste a provider's key below  it is tried with one free request, and kept
  export ANTHROPIC_API_KEY=...  or set it in your shell; `turnwise models` names them all
  ollama serve                  or LM Studio, llama.cpp, vLLM: on this machine
  turnwise -m openai_chat:NAME --base-url URL       any other endpoint
"""


def first_choice(given: Given, *, asks: bool) -> Given:
    """The same options with the model that the person chooses; their settings file remembers it. `asks`: a person is at a
    terminal.

    If nobody can be asked, it raises CallerError in one line, with what was found and what to do. It raises Failure if the person
    leaves, and SystemExit for Ctrl-C.
    """
    base_url = given["base_url"] or os.environ.get("TURNWISE_BASE_URL")
    if base_url:  # models that were found elsewhere are not at that endpoint, and have other keys
        raise CallerError(
            "no model: give -m openai_chat:NAME (or another family) for the address in --base-url or TURNWISE_BASE_URL; "
            "`turnwise models openai_chat --base-url URL` lists them"
        )
    found = look_around(os.environ)
    if not asks:
        raise CallerError(no_model_line(found))
    terminal = Terminal()
    for line in greeting(found):
        terminal.say(clean_row(line))
    chosen = _Asking(found, given=given, terminal=terminal).chosen()
    model = chosen["model"]
    assert model is not None, "a choice has a model"
    try:
        path = remember_model(model, base_url=chosen["base_url"], env=os.environ)
    except CallerError as error:
        terminal.say(clean_row(f"not remembered: {error}"))
    else:
        terminal.say(clean_row(f"remembered in {from_home(str(path))}; change it there, or take another with -m"))
    if chosen["api_key_env"]:
        terminal.say(
            clean_row(
                f"not remembered: --api-key-env {chosen['api_key_env']}; give it each time, or store the key: `turnwise auth add "
                f"{(chosen['base_url'] or model.partition(':')[0]).partition('?')[0]}`"
            )
        )
    return chosen


def no_model_line(found: FoundEndpoints) -> str:
    """What was found and what to do, in one line."""
    names = [key.variable or f"a stored key of {key.profile.name}" for key in found.keys] + [
        server_line(answer).partition(":")[0] for answer in found.servers
    ]
    if found.options:
        ways = " or ".join([f"-m {option}" for option in found.options[:MOST_TOLD]])
        return (
            f"no model: found {', '.join(names)}; give {ways}, or set TURNWISE_MODEL (`turnwise models` lists providers, "
            "`turnwise` alone lets you choose)"
        )
    absent = f", and there is {line}" if (line := absent_line(found)) else ""
    here = f"found {', '.join(names)}" if names else f"no provider's key is set{absent}"
    return (
        f"no model: give --model PROVIDER:NAME (for example openai:gpt-6.1-sol), or set TURNWISE_MODEL; {here} "
        "(`turnwise doctor` says what to do, `turnwise demo` needs neither key nor model)"
    )


def greeting(found: FoundEndpoints) -> list[str]:
    """What a person sees at the first start, up to the question."""
    lines = [f"turnwise {__version__}: no model is chosen yet.", "", "Found:"]
    lines += [f"  {key_line(key)}" for key in found.keys] or [
        "  no provider's key in the environment, and none is stored"
    ]
    lines += [f"  {server_line(answer)}" for answer in found.servers]
    lines += [f"  {absent}"] if (absent := absent_line(found)) else []
    lines.append("")
    if not found.options:
        lines += NOTHING.split("\n")
    lines.append("Choose:")
    lines += _numbered(found.options)
    lines.append(f"  {KEY}  paste a provider's key (it is not shown)")
    lines += [f"  {DEMO}  `turnwise demo`: what it is for, without a key", f"  {LEAVE}  leave", ""]
    lines.append("or paste a key, or type any PROVIDER:NAME, or the URL of a server; ? shows what else.")
    lines.append("`turnwise models` lists providers, `turnwise doctor` checks this machine.")
    lines.append("Without this question: `turnwise -m PROVIDER:NAME`, or set TURNWISE_MODEL.")
    return lines


class _Asking:
    """Asks for a model until one is chosen whose address and key are known. For a URL, the server's list of models replaces what
    was found before."""

    def __init__(self, found: FoundEndpoints, *, given: Given, terminal: Terminal) -> None:
        self._given = given
        self._terminal = terminal
        self._options = found.options
        self._listed: ServerModels | None = None
        self._doubts = Doubts()

    def chosen(self) -> Given:
        """The options with the chosen model. Raises Failure if the person leaves, SystemExit for Ctrl-C and after the demo."""
        while True:
            try:
                if (given := self._take(self._typed())) is not None:
                    return given
            except CallerError as error:
                complain(str(error))

    def _typed(self) -> str:
        from turnwise.terminal.words import model_completer

        question = (
            "model [1]: " if self._options else "key or model: " if self._listed is None else "the model's name there: "
        )
        completer = model_completer(lambda begun: beginning_with(begun, offered=self._options))
        try:
            return run_to_end(self._terminal.line(lambda: question, completer=completer, hides=is_like_key)).strip()
        except PromptStopped:
            raise SystemExit(CANCELLED) from None
        except PromptLeft:
            return LEAVE

    def _take(self, typed: str) -> Given | None:
        """Take the choice. None: ask again. Raises CallerError for text that is not a choice, Failure if the person leaves."""
        match typed or ("1" if self._options else ""):
            case "":
                self._say(EMPTY)
            case "q" | "quit" | "exit" | "/quit" | "/exit":
                raise Failure(LEFT)
            case "?" | "help" | "/help":
                self._say(*HELP)
            case "d" | "demo":
                from turnwise.terminal.lab import demo_command

                demo_command.main([], prog_name="turnwise demo", standalone_mode=False)
                raise SystemExit(0)
            case "k" | "key":
                self._take_key("")
            case key if is_like_key(key):
                self._take_key(key)
            case number if number.isdecimal():
                return self._checked(self._numbered(number))
            case _:
                given = read_typed(typed, given=self._given)
                if given["model"] and given["base_url"]:
                    return self._at_address(given)
                if given["model"]:
                    return self._checked(given if self._listed is None else self._at_listed(given, listed=self._listed))
                self._list(given)
        return None

    def _numbered(self, number: str) -> Given:
        if not 0 < int(number[:9]) <= len(self._options):
            raise CallerError(f"there is no `{number[:9]}`: {many(len(self._options), 'model')} to choose from")
        given = self._given.copy()
        given["model"] = self._options[int(number) - 1]
        return given if self._listed is None else at_listed(given, listed=self._listed)

    def _at_listed(self, given: Given, *, listed: ServerModels) -> Given:
        named = at_listed(given, listed=listed)
        self._doubts.raise_once(named["model"] or "", doubt=unlisted(named, listed=listed))
        return named

    def _at_address(self, given: Given) -> Given:
        """The address is remembered with the model, so it is tried in the same way as a URL alone."""
        there, doubt = check_address(given, env=os.environ)
        self._doubts.raise_once(f"{there['model']} {there['base_url']}", doubt=doubt)
        if there["base_url"] != (given["base_url"] or "").rstrip("/"):
            self._say(f"the server answers at {(there['base_url'] or '').partition('?')[0]}")
        return there

    def _checked(self, given: Given) -> Given:
        check(given, env=os.environ)
        return given

    def _take_key(self, typed: str) -> None:
        """Keep the key, and offer the models of its provider: the suggested ones first."""
        from turnwise.terminal.auth import ask_key

        if (given := ask_key(self._terminal, typed=typed)) is None:
            return
        profile, key, tried = given
        self._say(*store_key(profile, key, env=os.environ)[1])
        suggested = suggested_models().get(profile.name, ())
        names = tuple([name for name in suggested if not tried.models or is_listed(name, names=tried.models)])
        names = tuple(dict.fromkeys([*names, *tried.models]))
        listed = ServerModels(base_url=profile.base_url or "", provider=profile.name, names=names, why=tried.why)
        self._listed, self._options = listed, names
        self._say(*listed_lines(listed))

    def _list(self, given: Given) -> None:
        from turnwise.terminal.auth import ask_key_at

        address = given["base_url"] or ""
        listed = list_at(address, api_key_env=given["api_key_env"], env=os.environ)
        if listed.wants_key:
            self._say(f"{address.partition('?')[0]}: {listed.why}")
            if kept := ask_key_at(self._terminal, address):
                self._say(*kept)
                listed = list_at(address, api_key_env=None, env=os.environ)
        given["base_url"] = None
        self._given, self._listed, self._options = given, listed, listed.names
        self._say(*listed_lines(listed))

    def _say(self, *lines: str) -> None:
        for line in lines:
            self._terminal.say(clean_row(line))


def listed_lines(listed: ServerModels) -> list[str]:
    """The models of a server, by number; or why it has no list, and what to do then."""
    where = listed.base_url.partition("?")[0]
    if not listed.names:
        return [
            f"{where}: {listed.why_said}",
            "type the name of a model there, or something else; ? shows what, q leaves",
        ]
    lines = [f"{where}: {many(len(listed.names), 'model')}"]
    lines += _numbered(listed.names[:MOST_LISTED])
    more = len(listed.names) - MOST_LISTED
    return [*lines, f"  and {more} more: type a name, Tab completes it"] if more > 0 else lines


def _numbered(names: Sequence[str]) -> list[str]:
    width = len(str(len(names)))
    return [f"  {number:>{width}}  {name}" for number, name in enumerate(names, start=1)]


def keeping_line(choice: Choice, *, settings: RunSettings, env: Mapping[str, str]) -> str:
    """How to get a model that worked without `-m` the next time; empty if a model is remembered, or if its address may hold a
    key."""
    if settings.model or env.get("TURNWISE_MODEL") or "?" in (choice.base_url or ""):
        return ""
    lines = in_ticks(lines_of(choice.model, base_url=choice.base_url), between=" and ")
    return f"to start with this model without -m: {lines} in {from_home(str(user_file(env)))}"
