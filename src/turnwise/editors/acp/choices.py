"""What a person chooses at the editor: what may run without asking (the mode), and the model."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeGuard

from acp.schema import (
    SessionConfigOptionBoolean,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
)

from turnwise.coding_agent.text import visible_line
from turnwise.rules.permissions import PermissionRule

EditorOption = SessionConfigOptionSelect | SessionConfigOptionBoolean
ModeName = Literal["read-only", "ask", "edits"]
MODE, MODEL = "mode", "model"  # ids of the two options
MAX_MODELS = 200


class EditorMode(NamedTuple):
    """`rules` come after all others: they tighten whatever these say, and loosen only what no pattern forbids. `allow_hint` says
    how a person allows what the mode denies; empty for the usual words."""

    name: str
    description: str
    rules: tuple[PermissionRule, ...] = ()
    allow_hint: str = ""


def _rules(mode: str, **verdicts: Literal["allow", "deny"]) -> tuple[PermissionRule, ...]:
    where = f"the editor's mode `{mode}`"
    return tuple(
        [
            PermissionRule(verdict=verdict, effect=effect, source="command line", where=where)
            for effect, verdict in verdicts.items()
        ]
    )


MODES: Mapping[ModeName, EditorMode] = {
    "read-only": EditorMode(
        "Read only",
        "Nothing is written and no command runs.",
        _rules("read-only", write="deny", execute="deny"),
        "set another mode of this session in the editor",
    ),
    "ask": EditorMode("Ask", "Your rules hold; otherwise you are asked before files change and commands run."),
    "edits": EditorMode(
        "Edits allowed",
        "Files in the folder are changed without asking; you are still asked about commands and guarded files.",
        _rules("edits", write="allow"),
    ),
}
USUAL: ModeName = "ask"


def is_mode(name: object) -> TypeGuard[ModeName]:
    return isinstance(name, str) and name in MODES


def mode_state(mode: ModeName) -> SessionModeState:
    modes = [SessionMode(id=id, name=one.name, description=one.description) for id, one in MODES.items()]
    return SessionModeState(current_mode_id=mode, available_modes=modes)


def options_of(mode: ModeName, *, model: str, offered: Sequence[str]) -> list[EditorOption]:
    """The same mode, and the model, as options. `offered` are names of the model's own provider."""
    provider = model.partition(":")[0]
    models = list(dict.fromkeys([model, *[f"{provider}:{name}" for name in offered[:MAX_MODELS]]]))
    return [
        SessionConfigOptionSelect(
            type="select",
            id=MODE,
            name="Permissions",
            category="mode",
            current_value=mode,
            options=[
                SessionConfigSelectOption(value=id, name=one.name, description=one.description)
                for id, one in MODES.items()
            ],
        ),
        SessionConfigOptionSelect(
            type="select",
            id=MODEL,
            name="Model",
            category="model",
            current_value=model,
            options=[SessionConfigSelectOption(value=one, name=visible_line(one)) for one in models],
        ),
    ]
