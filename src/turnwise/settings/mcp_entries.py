"""What is said of an MCP server: how it is reached, and what it may do. No text made of it shows a value that may be secret."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from turnwise.errors import CallerError
from turnwise.rules.mcp_names import MAX_SERVER, is_server_name
from turnwise.turn.config import Effect

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
    """A server elsewhere, over streamable HTTP. `headers` go with every request."""

    url: str
    headers: Mapping[str, str] = {}

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
