"""The `[permissions]` tables of the user's and the project's file -> ordered rules, and the policy of a folder.

[permissions]
unattended = "deny"                  # what becomes of asks where nobody is there; the user's own file only
trusted_folders = ["~/src/ours"]    # whose project files may widen what is allowed; the user's own file only
rules = [
    { allow = "bash", command = "npm test *" },
    { ask = "bash", command = ["git", "push", "*"] },
    { deny = "*", path = "secret/**" },
]
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, cast, get_args

from turnwise.errors import CallerError
from turnwise.rules.arguments import mcp_pattern
from turnwise.rules.permissions import PermissionKind, PermissionRule, Policy, plain_command, plain_rule
from turnwise.settings.settings import Layer, SettingsSource, is_table, near_hint
from turnwise.turn.config import Effect
from turnwise.vocab.file_names import marked
from turnwise.vocab.json_values import is_json_array

KEY = "permissions"
MAX_RULES = 500  # each is looked at for each part of a call
_USERS_OWN = ("unattended", "trusted_folders")
_KEYS = ("rules", *_USERS_OWN)
_VERDICTS: dict[str, PermissionKind] = {"allow": "allow", "ask": "ask", "deny": "deny"}
_EFFECTS = get_args(Effect)
_RULE_KEYS = (*_VERDICTS, "effect", "path", "command")


def policy_of(
    layers: Iterable[Layer],
    *,
    workspace: Path,
    home: Path,
    attended: bool,
    session_rules: Sequence[PermissionRule] = (),
    command_line_rules: Sequence[PermissionRule] = (),
) -> Policy:
    """All that judges calls in the folder `workspace`: the rules of the user's file, the project's, the session and the command
    line, in this order. `layers` are those of `settings.read_layers`. `attended`: somebody is there to be asked.

    A project's file may widen what is allowed only where the user's `trusted_folders` hold it. Raises CallerError in one line,
    with file and key.
    """
    known = tuple(layers)
    rules: dict[SettingsSource, tuple[PermissionRule, ...]] = {"session": tuple(session_rules)}
    rules["command line"] = tuple(command_line_rules)
    unattended: Literal["allow", "deny"] = "deny"
    trusted: tuple[Path, ...] = ()
    for layer in known:
        rules[layer.source] = (*rules.get(layer.source, ()), *read_rules(layer))
        if layer.source != "project":
            unattended = _unattended(layer) or unattended
            trusted += _trusted_folders(layer, home=home)
    folders = [layer.path.parent for layer in known if layer.source == "project" and layer.path is not None]
    order: tuple[SettingsSource, ...] = ("user", "project", "session", "command line")
    return Policy(
        rules=tuple([rule for source in order for rule in rules.get(source, ())]),
        workspace=marked(os.path.realpath(workspace)),
        home=marked(os.path.realpath(home)),
        attended=attended,
        unattended=unattended,
        trusts_project=bool(folders) and all(_is_within(folder, trusted) for folder in folders),
    )


def read_rules(layer: Layer) -> tuple[PermissionRule, ...]:
    """The rules of one layer's `[permissions]` table, in its order; () where it has none. Raises CallerError."""
    table = _table(layer)
    given = table.get("rules", [])
    where = layer.named(f"{KEY}.rules")
    if not is_json_array(given):
        raise CallerError(f"{where} is no list: write `rules = [{{ allow = 'bash', command = 'ls *' }}]`")
    if len(given) > MAX_RULES:
        raise CallerError(f"{where} has {len(given):,} rules, more than {MAX_RULES}: join some by patterns")
    return tuple(
        [
            parse_rule(item, source=layer.source, where=layer.named(f"{KEY}.rules[{at}]"))
            for at, item in enumerate(given)
        ]
    )


def parse_rule(given: object, *, source: SettingsSource, where: str) -> PermissionRule:
    """One rule: `allow`, `ask` or `deny` names the tool (a glob), `effect`, `path` or `command` say of which of its calls.

    `where` names file and key in errors and in what the model is told. Raises CallerError.
    """
    if not is_table(given):
        raise CallerError(f"{where} is no table: write `{{ allow = 'bash', command = 'ls *' }}`")
    for key in given:
        if key not in _RULE_KEYS:
            raise CallerError(f"{where}: `{key}` is no key of a rule; {near_hint(key, known=_RULE_KEYS)}")
    verdicts = [key for key in given if key in _VERDICTS]
    if len(verdicts) != 1:
        raise CallerError(f"{where} needs one of `allow`, `ask` and `deny`, and has {len(verdicts)}: make it one")
    effect = _text(given, "effect", where=where)
    if effect is not None and effect not in _EFFECTS:
        raise CallerError(f"{where}: `effect` is `{effect}`; it is one of {', '.join(_EFFECTS)}")
    rule = PermissionRule(
        verdict=_VERDICTS[verdicts[0]],
        tool=_tool_of(_text(given, verdicts[0], where=where) or "*", where=where),
        effect=effect,
        path=_text(given, "path", where=where),
        command=_command(given.get("command"), where=where),
        source=source,
        where=where,
    )
    return plain_rule(rule, where=where)


def _tool_of(text: str, *, where: str) -> str:
    """The pattern of tools; that of an MCP server's is written `mcp(server.tool)`."""
    if not text.startswith("mcp("):
        return text
    pattern = mcp_pattern(text)
    if pattern is None:
        raise CallerError(
            f"{where}: `{text}` is no tool of an MCP server: write `mcp(server.tool)`, or `mcp(server.*)`"
        )
    return pattern


def _table(layer: Layer) -> Mapping[str, object]:
    table = layer.table.get(KEY, {})
    if not is_table(table):
        raise CallerError(f"{layer.named(KEY)} is no table: write `[{KEY}]`, and its keys below")
    for key in table:
        if key not in _KEYS:
            raise CallerError(f"{layer.named(f'{KEY}.{key}')}: no such setting; {near_hint(key, known=_KEYS)}")
        if key in _USERS_OWN and layer.source == "project":
            named = layer.named(f"{KEY}.{key}")
            raise CallerError(f"{named}: a project cannot say this; take it out, and put it into your own file")
    return table


def _unattended(layer: Layer) -> Literal["allow", "deny"] | None:
    match _table(layer).get("unattended"):
        case None:
            return None
        case "allow":
            return "allow"
        case "deny":
            return "deny"
        case other:
            raise CallerError(f"{layer.named(f'{KEY}.unattended')} is `{other}`; it is `allow` or `deny`")


def _trusted_folders(layer: Layer, *, home: Path) -> tuple[Path, ...]:
    given = _table(layer).get("trusted_folders", [])
    named = layer.named(f"{KEY}.trusted_folders")
    if not is_json_array(given):
        raise CallerError(f"{named} is no list: write `trusted_folders = ['~/src/ours']`")
    folders: list[Path] = []
    for folder in given:
        if not isinstance(folder, str) or not (folder.startswith(("/", "~/")) or folder == "~"):
            raise CallerError(f"{named}: `{folder}` is no folder; begin it with `/` or `~/`")
        folders.append(Path(os.path.realpath(home / folder[2:] if folder.startswith("~") else folder)))
    return tuple(folders)


def _is_within(folder: Path, trusted: Sequence[Path]) -> bool:
    real = Path(os.path.realpath(folder))
    return any(real == one or one in real.parents for one in trusted)


def _text(given: Mapping[str, object], key: str, *, where: str) -> str | None:
    value = given.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise CallerError(f"{where}: `{key}` is no text: write it between quotes, `*` for all")
    return value


def _command(value: object, *, where: str) -> tuple[str, ...] | None:
    match value:
        case None:
            return None
        case str() if value.strip():
            return plain_command(value, where=where)
        case list():
            words = cast("list[object]", value)
            texts = [word for word in words if isinstance(word, str) and word]
            if texts and len(texts) == len(words):
                return plain_command(texts, where=where)
        case _:
            pass
    raise CallerError(f"{where}: `command` is neither a text nor a list of words: write `command = 'git push *'`")
