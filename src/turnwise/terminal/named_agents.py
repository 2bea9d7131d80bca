"""The agents that a worker's command line names: `name=package.module:agent`."""

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from turnwise.agent.agent import Agent
from turnwise.errors import CallerError

LOOKS = "`--agent` is `NAME=PACKAGE.MODULE:AGENT`"


def load_agents(given: Sequence[str]) -> dict[str, Agent[Any, Any]]:
    """By name. What stands behind `:` is an Agent, or a function that makes one. Modules are also looked for in this folder.

    Raises CallerError where there is none, or where its module raises: with the place, but not with what was said, which may
    hold a secret.
    """
    agents: dict[str, Agent[Any, Any]] = {}
    for text in given:
        name, _, place = text.partition("=")
        if not name or not place.partition(":")[2]:
            raise CallerError(f"{LOOKS}, and not `{text}`")
        if name in agents:
            raise CallerError(f"`--agent {name}` is given twice")
        agents[name] = _load_or_say(place, option=text)
    return agents


def _load_or_say(place: str, *, option: str) -> Agent[Any, Any]:
    try:
        return _load(place, option=option)
    except CallerError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever the module raises)
        module_name = place.partition(":")[0]
        raise CallerError(
            f"`--agent {option}`: `{module_name}` raised {type(error).__name__} at {_place_of(error)}"
        ) from None


def _place_of(error: BaseException) -> str:
    """The last line of this folder that led to it, else the last of all."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    here = [frame for frame in frames if Path(frame.filename).is_relative_to(Path.cwd())]
    last = (here or frames)[-1]
    return f"{last.filename}:{last.lineno}"


def _load(place: str, *, option: str) -> Agent[Any, Any]:
    module_name, _, path = place.partition(":")
    if (here := os.getcwd()) not in sys.path:  # noqa: PTH109 (as `python -m` does)
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise CallerError(f"`--agent {option}`: `{module_name}` needs the module `{error.name}`") from None
        raise CallerError(f"`--agent {option}`: there is no module `{error.name}` here or among the packages") from None
    for part in path.split("."):
        if not hasattr(found, part):
            raise CallerError(f"`--agent {option}`: `{module_name}` has no `{path}`")
        found = getattr(found, part)
    made = _made_of(found)
    if not isinstance(made, Agent):
        raise CallerError(
            f"`--agent {option}`: `{path}` is a {type(made).__name__}, and neither an Agent nor makes one"
        )
    return cast("Agent[Any, Any]", made)


def _made_of(found: Any) -> object:
    """An agent as it is; else what the function gives."""
    return cast("object", found) if isinstance(found, Agent) or not callable(found) else found()
