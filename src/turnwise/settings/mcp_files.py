"""MCP servers out of files: `[mcp.NAME]` of the user's and the project's file, a project's `.mcp.json`, and `--mcp FILE`.

[mcp.git]
command = ["uvx", "mcp-server-git"]   # or url = "https://..." with headers = { Authorization = "Bearer ${TOKEN}" }
env = { GIT_AUTHOR_NAME = "Ada" }
start_s = 10
call_s = 60
effects = { "git_status" = "read" }
trusts_hints = true
sandbox = false                        # the user's own file only, as is network
network = true
sampling = 3                           # and this: so often may it ask the model in one call
"""

import hashlib
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, cast, get_args
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from turnwise.base.programs import ProgramSearch
from turnwise.base.unasked_files import LeftOut, read_of_user, read_unasked
from turnwise.errors import CallerError
from turnwise.rules.arguments import MAX_SERVER, is_server_name
from turnwise.settings.settings import MCP_FILE, MCP_TABLE, Layer, is_table, near_hint, project_folders
from turnwise.turn.config import Effect
from turnwise.vocab.file_names import shown_name
from turnwise.vocab.json_values import is_json_array

# What is said of an MCP server: how it is reached, and what it may do. No text made of it shows a value that may be secret.


START_S = (
    10.0  # the first step waits so long; a server that is downloaded first needs longer, and comes with the next turn
)

MAX_SAMPLING = 100  # a person cannot look through more requests of one call


class ServerCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A server that is started here and speaks over its standard input and output.

    - `argv` is the program and its arguments. `env` are variables beside `mcp`'s default ones.
    - `folder` is where it runs, and the only folder that it may write in, apart from a temporary one of its own.
    - `sandbox`: it runs in the best sandbox that this machine has. `network`: it may use the network there.
    - `is_confined`: it may be another program each time, and does not run where no sandbox works.
    """

    argv: tuple[str, ...]
    folder: Path
    env: Mapping[str, str] = {}
    sandbox: bool = True
    network: bool = False
    is_confined: bool = False

    def __repr__(self) -> str:
        return f"ServerCommand({self.argv[0]!r}, {len(self.argv) - 1} arguments, env={sorted(self.env)})"


class ServerAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A server elsewhere, over streamable HTTP. `headers` go with every request. `uses_login`: so does what `turnwise mcp login`
    has kept for this address. `client_id` and `client_secret` are turnwise's own at the authorization server of the server; an id
    that is an https address is that of a document which describes the client."""

    url: str
    headers: Mapping[str, str] = {}
    uses_login: bool = False
    client_id: str = ""
    client_secret: str = ""

    @property
    def login_name(self) -> str:
        """Under which its login is kept, beside the keys of providers: the path of an address may hold a secret."""
        return f"mcp:{urlsplit(self.url).hostname}:{hashlib.sha256(self.url.encode()).hexdigest()[:12]}"

    def __repr__(self) -> str:
        return f"ServerAddress(headers={sorted(self.headers)})"


class ServerObject(msgspec.Struct, frozen=True, kw_only=True):
    """A server of this process: an `MCPServer` or a `Server` of the package `mcp`."""

    server: object


class ServerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A server with its name, and how turnwise treats it.

    - `start_s`: seconds that the first step waits for it. `call_s`: seconds for one call (None: as for any tool).
    - `effects` says what its tools do, by their names there (globs). A server's own word for that counts only with
      `trusts_hints`. A tool that nothing is said of has the effect `execute`.
    - `sampling`: so often may it ask the run's model in one call.
    - `is_shared`: runs of several people may use it at once.
    """

    name: str
    reached: ServerCommand | ServerAddress | ServerObject
    start_s: float = START_S
    call_s: float | None = None
    effects: Mapping[str, Effect] = {}
    trusts_hints: bool = False
    sampling: int = 0
    is_shared: bool = False


def is_web_address(text: str) -> bool:
    """Whether it is an address that a server can be reached at, or that a person may be shown."""
    return text.startswith(("https://", "http://"))


def check_server_name(name: str) -> None:
    """Raise CallerError for a name that the names of tools cannot begin with."""
    if not is_server_name(name):
        raise CallerError(
            f"`{name}` is no name for an MCP server: letters and digits, single `-` or `_` between them, a letter first, at "
            f"most {MAX_SERVER}"
        )


SERVERS = "mcpServers"  # the key that other programs use
MAX_BYTES = 256 * 1024
MAX_SERVERS = 50
_OWN_VARIABLES = "TURNWISE_"  # turnwise's own: one may hold the address of a journal, with a password
_USERS_OWN = ("sandbox", "network", "effects", "trusts_hints", "sampling")  # what widens what a server may do
_KEYS = (
    "command",
    "args",
    "env",
    "url",
    "headers",
    "client_id",
    "client_secret",
    "type",
    "start_s",
    "call_s",
    *_USERS_OWN,
)
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_PLAIN_WORD = re.compile(r"[\w@%+=:,./${}-]+")
_LOGIN = re.compile(r"://[^/@]*@")

ServerSource = Literal["user", "project", "command line"]


class NamedServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server as a file names it. `where` is the file and the key; `digest` is of all that was written there. `variables` are
    the names that its texts take from the environment. `words` is how it is reached, as it stands there: no variable is
    filled in. `may_change`: the file itself lies where the model may write."""

    entry: ServerEntry
    source: ServerSource
    where: str
    digest: str
    variables: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    may_change: bool = False

    @property
    def name(self) -> str:
        return self.entry.name


class ServerSurroundings(msgspec.Struct, frozen=True, kw_only=True):
    """Where servers run, what their texts may take from the environment, and which variables hold a provider's key."""

    folder: Path
    env: Mapping[str, str]
    keys: Collection[str]
    network: bool = False  # of servers that may not say it themselves


def read_servers(
    layers: Iterable[Layer],
    *,
    files: Sequence[Path],
    around: ServerSurroundings,
    leave_out: Callable[[str], object] | None = None,
) -> tuple[NamedServer, ...]:
    """All servers, by name. A later source overrides an earlier one: the project's `.mcp.json`, its `turnwise.toml`, the user's
    own file, and the files of the command line. Raises CallerError in one line, with file and key.

    With `leave_out`, an unusable entry of a project's `.mcp.json` is told to it and left out: that file is for other programs
    too, and may use what only they know.

    A project's server never overrides a server of the user. Otherwise a foreign folder could replace a server that the user
    trusts.
    """
    found: dict[str, NamedServer] = {}
    known = tuple(layers)
    for source in ("project", "user"):
        if source == "project":
            found |= _of_project_file(around, leave_out=leave_out)
        for layer in known:
            if layer.source == source:
                servers = _of_table(
                    layer.table.get(MCP_TABLE, {}), source=source, where=layer.named(MCP_TABLE), around=around
                )
                may_change = layer.path is not None and _lies_in(layer.path, around=around)
                found |= {name: replace(one, may_change=may_change) for name, one in servers.items()}
    for path in files:
        servers = _of_json(_text_of(path), source="command line", path=path, around=around)
        found |= {name: replace(one, may_change=_lies_in(path, around=around)) for name, one in servers.items()}
    if len(found) > MAX_SERVERS:
        raise CallerError(f"there are {len(found)} MCP servers, more than {MAX_SERVERS}: take some out")
    return tuple(found.values())


def _lies_in(path: Path, *, around: ServerSurroundings) -> bool:
    """Whether the model may write the file, or a link that leads to it."""
    return not ProgramSearch(None, workspace=str(around.folder)).is_apart(os.path.abspath(path))  # noqa: PTH100


def project_file(folder: Path) -> Path | None:
    """The `.mcp.json` of the folder's project, looked for as its `turnwise.toml` is; None where there is none."""
    paths = (place / MCP_FILE for place in project_folders(folder))
    return next((path for path in paths if os.path.lexists(path)), None)


def _of_project_file(
    around: ServerSurroundings, *, leave_out: Callable[[str], object] | None
) -> dict[str, NamedServer]:
    path = project_file(around.folder)
    if path is None:
        return {}
    found: dict[str, NamedServer] = {}
    try:
        for name, given in _table_of_project(path, root=project_folders(around.folder)[-1]).items():
            try:
                found |= _of_table({name: given}, source="project", where=_named(path), around=around)
            except CallerError as error:
                _left_out(error, leave_out=leave_out)
    except CallerError as error:
        _left_out(error, leave_out=leave_out)
    return found


def _left_out(error: CallerError, *, leave_out: Callable[[str], object] | None) -> None:
    if leave_out is None:
        raise error
    leave_out(f"an MCP server is left out: {error}")


def _table_of_project(path: Path, *, root: Path) -> Mapping[str, object]:
    content = read_unasked(path, within=root, max_bytes=MAX_BYTES)
    if isinstance(content, LeftOut):
        raise CallerError(f"`{path}` {content.why}: put the servers into a file there, or take it away")
    return {} if content is None else _servers_in(content, path=path)


def _text_of(path: Path) -> bytes:
    content = read_of_user(path, max_bytes=MAX_BYTES)
    if content is None:
        raise CallerError(f"--mcp: there is no file `{path}`")
    if isinstance(content, LeftOut):
        raise CallerError(f"--mcp: `{path}` {content.why}")
    return content


def _of_json(content: bytes, *, source: ServerSource, path: Path, around: ServerSurroundings) -> dict[str, NamedServer]:
    return _of_table(_servers_in(content, path=path), source=source, where=_named(path), around=around)


def _named(path: Path) -> str:
    return f"`{path}`: `{SERVERS}"


def _servers_in(content: bytes, *, path: Path) -> Mapping[str, object]:
    try:
        given: object = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise CallerError(f"`{path}` is no JSON: {error}; correct it there") from None
    servers = given.get(SERVERS) if is_table(given) else None
    if not is_table(servers):
        raise CallerError(f'`{path}` has no servers: write `{{"{SERVERS}": {{"NAME": {{"command": ...}}}}}}`')
    return servers


def _of_table(table: object, *, source: ServerSource, where: str, around: ServerSurroundings) -> dict[str, NamedServer]:
    if not is_table(table):
        raise CallerError(f"{where} is no table: write `[{MCP_TABLE}.NAME]`, and its keys below")
    return {
        name: _server(name, given, source=source, where=f"{where.removesuffix('`')}.{name}`", around=around)
        for name, given in table.items()
    }


def _server(name: str, given: object, *, source: ServerSource, where: str, around: ServerSurroundings) -> NamedServer:
    try:
        check_server_name(name)
    except CallerError as error:
        raise CallerError(f"{where}: {error}") from None
    if not is_table(given):
        raise CallerError(f"{where} is no table: it needs `command` or `url`")
    keys = _KEYS if source == "user" else _KEYS[: -len(_USERS_OWN)]
    for key in given:
        if key not in _KEYS:
            raise CallerError(f"{where}: `{key}` is no key of a server; {near_hint(key, known=keys)}")
        if key in _USERS_OWN and source != "user":
            raise CallerError(f"{where}: only your own file can say `{key}`; take it out")
    reader = _Reader(given, where=where, around=around)
    entry = ServerEntry(
        name=name,
        reached=reader.reached(),
        start_s=reader.seconds("start_s") or START_S,
        call_s=reader.seconds("call_s"),
        effects=reader.effects(),
        trusts_hints=reader.flag("trusts_hints", otherwise=False),
        sampling=reader.sampling(),
    )
    digest = hashlib.sha256(
        msgspec.json.encode([shown_name(str(around.folder)), name, given], order="sorted")
    ).hexdigest()[:32]
    return NamedServer(
        entry=entry,
        source=source,
        where=where,
        digest=digest,
        variables=tuple(dict.fromkeys(reader.variables)),
        words=reader.words(),
    )


class _Reader:
    """Reads one server's table. All raise CallerError."""

    def __init__(self, given: Mapping[str, object], *, where: str, around: ServerSurroundings) -> None:
        self._given, self._where, self._around = given, where, around
        self.variables: list[str] = []

    def reached(self) -> ServerCommand | ServerAddress:
        command, url = self._given.get("command"), self._given.get("url")
        if (command is None) == (url is None):
            raise CallerError(f"{self._where} needs one of `command` and `url`")
        if url is not None:
            address = self._text(url, "url")
            if not is_web_address(address):
                raise CallerError(f"{self._where}: `url` begins with `https://` or `http://`")
            headers = self._texts("headers")
            return ServerAddress(
                url=address,
                headers=headers,
                uses_login="authorization" not in map(str.lower, headers),
                client_id=self._text(self._given.get("client_id", ""), "client_id"),
                client_secret=self._text(self._given.get("client_secret", ""), "client_secret"),
            )
        words = [command] if isinstance(command, str) else command
        return ServerCommand(
            argv=(*self._words(words, "command"), *self._words(self._given.get("args", []), "args")),
            folder=self._around.folder,
            env=self._environment(),
            sandbox=self.flag("sandbox", otherwise=True),
            network=self.flag("network", otherwise=self._around.network),
        )

    def words(self) -> tuple[str, ...]:
        """How it is reached, as it stands there."""
        one = self._given.get("command", self._given.get("url"))
        first = cast("list[str]", one) if isinstance(one, list) else [cast("str", one)]
        return (*first, *cast("list[str]", self._given.get("args", [])))

    def seconds(self, key: str) -> float | None:
        value = self._given.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 86_400:
            raise CallerError(f"{self._where}: `{key}` is a number of seconds, more than 0")
        return float(value)

    def flag(self, key: str, *, otherwise: bool) -> bool:
        value = self._given.get(key, otherwise)
        if not isinstance(value, bool):
            raise CallerError(f"{self._where}: `{key}` is `true` or `false`")
        return value

    def sampling(self) -> int:
        """How often it may ask the model in one call."""
        value = self._given.get("sampling", 0)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_SAMPLING:
            raise CallerError(f"{self._where}: `sampling` is a number from 0 (off) to {MAX_SAMPLING}")
        return value

    def effects(self) -> dict[str, Effect]:
        table = self._given.get("effects", {})
        if not is_table(table) or not all(one in get_args(Effect) for one in table.values()):
            raise CallerError(
                f'{self._where}: `effects` says of tools what they do: `{{ "read_*" = "read" }}`, one of '
                f"{', '.join(get_args(Effect))}"
            )
        return cast("dict[str, Effect]", dict(table))

    def _environment(self) -> dict[str, str]:
        env = self._texts("env")
        held = {self._around.env[key] for key in self._around.keys if self._around.env.get(key)}
        for name, value in env.items():
            if name in self._around.keys or value in held:
                raise CallerError(
                    f"{self._where}: `env.{name}` would give the server the key of a model's provider; take it out"
                )
        return env

    def _texts(self, key: str) -> dict[str, str]:
        table = self._given.get(key, {})
        if not is_table(table):
            raise CallerError(f"{self._where}: `{key}` is a table of texts")
        return {name: self._text(value, f"{key}.{name}") for name, value in table.items()}

    def _words(self, words: object, key: str) -> tuple[str, ...]:
        if not is_json_array(words) or (key == "command" and not words):
            raise CallerError(f'{self._where}: `{key}` is a list of words: `{key} = ["uvx", "mcp-server-git"]`')
        return tuple([self._text(word, key) for word in words])

    def _text(self, value: object, key: str) -> str:
        """With `${NAME}` and `${NAME:-otherwise}` filled in."""
        if not isinstance(value, str) or "\0" in value:
            raise CallerError(f"{self._where}: `{key}` is a text")

        def filled(found: re.Match[str]) -> str:
            name, otherwise = found[1], found[2]
            if name in self._around.keys or name.startswith(_OWN_VARIABLES):
                raise CallerError(
                    f"{self._where}: `{key}` wants `{name}`, which may hold a key of a model's provider; no server gets that"
                )
            self.variables.append(name)
            known = self._around.env.get(name)
            if known is None and otherwise is None:
                raise CallerError(f"{self._where}: `{key}` wants the variable `{name}`, which is not set")
            return known if known is not None else otherwise

        return _VARIABLE.sub(filled, value)


def shown(server: NamedServer) -> str:
    """How the server is reached, for people: no value of a variable or a header, and nothing of an address that may be secret."""
    match server.entry.reached:
        case ServerCommand(env=env):
            said = " ".join([word if _PLAIN_WORD.fullmatch(word) else shlex.quote(word) for word in server.words])
            return f"{said} (with {', '.join(sorted(env))})" if env else said
        case ServerAddress(headers=headers):
            said = _LOGIN.sub("://", server.words[0].partition("?")[0])
            return f"{said} (with {', '.join(sorted(headers))})" if headers else said
        case _:
            return "in this process"


def around_of(folder: Path, *, keys: Collection[str], network: bool) -> ServerSurroundings:
    """What servers of a run in `folder` have around them."""
    return ServerSurroundings(folder=folder.resolve(), env=os.environ, keys=keys, network=network)
