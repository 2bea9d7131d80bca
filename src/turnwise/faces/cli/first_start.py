"""What happens where nobody has named a model: what was found is shown, and at a terminal one is chosen and remembered."""

import os

from turnwise._version import __version__
from turnwise.drivers.own_loop import run_to_end
from turnwise.drivers.user_settings import remember_model
from turnwise.errors import CallerError
from turnwise.faces.cli.choice import address_in
from turnwise.faces.cli.failures import complain
from turnwise.faces.cli.found import Found, absent_line, key_line, look_around, server_line
from turnwise.faces.cli.main import CANCELLED
from turnwise.faces.cli.options import Given
from turnwise.faces.cli.terminal import Left, Stopped, Terminal
from turnwise.faces.cli.text import clean
from turnwise.faces.models import ON_THE_COMMAND_LINE, open_endpoint, read_model
from turnwise.faces.saying import many

MOST_TOLD = 3  # models that the one line names
DEMO, LEAVE = "d", "q"
NOTHING = """To begin, do one of these:
  export ANTHROPIC_API_KEY=...                  a provider's key; `turnwise models` names the variable of each
  ollama serve                                  or LM Studio, llama.cpp, vLLM: a model on this machine
  turnwise -m openai_chat:NAME --base-url URL   any other endpoint
"""


def first_choice(given: Given, *, asks: bool) -> Given:
    """The same options with the model that the person chooses; it is remembered in their file of settings. `asks`: they are at
    a terminal.

    Raises CallerError in one line, with what was found and what to do, where nobody can be asked; SystemExit where they leave.
    """
    base_url = given["base_url"] or os.environ.get("TURNWISE_BASE_URL")
    if base_url:  # what was found elsewhere is no model of that endpoint, and its key is none of theirs
        raise CallerError(
            "no model: give -m openai_chat:NAME (or another family) for the address in --base-url or TURNWISE_BASE_URL; "
            "`turnwise models openai_chat --base-url URL` lists them"
        )
    found = look_around(os.environ)
    if not asks:
        raise CallerError(no_model_line(found))
    terminal = Terminal()
    for line in greeting(found):
        terminal.say(clean(line))
    model = _asked(found, terminal=terminal, api_key_env=given["api_key_env"])
    try:
        path = remember_model(model, env=os.environ)
    except CallerError as error:
        terminal.say(clean(f"not remembered: {error}"))
    else:
        terminal.say(clean(f"remembered in {_from_home(str(path))}; change it there, or take another with -m"))
    return {**given, "model": model}


def no_model_line(found: Found) -> str:
    """What was found and what to do, as one line."""
    names = [key.variable for key in found.keys] + [_place(server_line(answer)) for answer in found.servers]
    if found.options:
        ways = " or ".join([f"-m {option}" for option in found.options[:MOST_TOLD]])
        return (
            f"no model: found {', '.join(names)}; give {ways}, or set TURNWISE_MODEL (`turnwise models` lists providers, "
            "`turnwise` alone lets you choose)"
        )
    here = f"found {', '.join(names)}" if names else f"no provider's key is set{_nor(found)}"
    return (
        f"no model: give --model PROVIDER:NAME (for example openai:gpt-5), or set TURNWISE_MODEL; {here} "
        "(`turnwise doctor` says what to do, `turnwise demo` needs neither key nor model)"
    )


def greeting(found: Found) -> list[str]:
    """What a person sees who starts turnwise for the first time, up to the question."""
    lines = [f"turnwise {__version__}: no model is chosen yet.", "", "Found:"]
    lines += [f"  {key_line(key)}" for key in found.keys] or ["  no provider's key in the environment"]
    lines += [f"  {server_line(answer)}" for answer in found.servers]
    lines += [f"  {absent}"] if (absent := absent_line(found)) else []
    lines.append("")
    if not found.options:
        lines += NOTHING.split("\n")
    lines.append("Choose:")
    lines += [f"  {number}  {option}" for number, option in enumerate(found.options, start=1)]
    lines += [f"  {DEMO}  `turnwise demo`: what it is for, without a key", f"  {LEAVE}  leave", ""]
    lines.append("or type any PROVIDER:NAME; `turnwise models` lists providers, `turnwise doctor` checks this machine.")
    lines.append("Without this question: `turnwise -m PROVIDER:NAME`, or `export TURNWISE_MODEL=PROVIDER:NAME`.")
    return lines


def _asked(found: Found, *, terminal: Terminal, api_key_env: str | None) -> str:
    """The model that was chosen, which can be asked: its address and key are there. Raises SystemExit."""
    prompt = "model [1]: " if found.options else "model: "
    while True:
        try:
            typed = run_to_end(terminal.line(lambda: prompt)).strip()
        except (Left, Stopped):
            raise SystemExit(CANCELLED) from None
        match typed or ("1" if found.options else LEAVE):
            case "q" | "quit" | "exit":
                raise SystemExit(CANCELLED)
            case "d" | "demo":
                from turnwise.faces.cli.demo import command as demo

                demo.main([], prog_name="turnwise demo", standalone_mode=False)
                raise SystemExit(0)
            case number if number.isdecimal():
                if 0 < int(number) <= len(found.options):
                    typed = found.options[int(number) - 1]
                else:
                    complain(f"there is no `{number}`: {many(len(found.options), 'model')} to choose from")
                    continue
            case _:
                pass
        try:
            check(typed, api_key_env=api_key_env)
        except CallerError as error:
            complain(str(error))
        else:
            return typed


def check(model: str, *, api_key_env: str | None) -> None:
    """Raises CallerError where it is no model, or its address or key is missing."""
    named = read_model(model)
    address = address_in(os.environ, provider=named.profile.name)
    open_endpoint(named, base_url=address, api_key_env=api_key_env, ways=ON_THE_COMMAND_LINE)


def _place(line: str) -> str:
    """`Ollama on port 11434`."""
    return line.partition(":")[0]


def _nor(found: Found) -> str:
    absent = absent_line(found)
    return f", and there is {absent}" if absent else ""


def _from_home(path: str) -> str:
    home = os.path.expanduser("~")  # noqa: PTH111
    return f"~{path.removeprefix(home)}" if home != "/" and path.startswith(f"{home}/") else path
