"""The parts of turnwise that are installed apart from the library, and the line that installs one.

`pyproject.toml` says what each extra installs; `tests/test_extras.py` compares it with this table.
"""

import importlib.util

from turnwise.errors import CallerError

# The name of an extra -> what it is for, and what its part imports first.
EXTRAS = {
    "terminal": ("the command line", ("click", "rich", "prompt_toolkit", "markdown_it", "pygments")),
    # Without the grammar of bash (tree-sitter) the part works, and every command asks (tools/shell_judge/grammar.py).
    "workspace": ("work in a folder", ("pathspec",)),
    "scripts": ("scripted steps", ("pydantic_monty",)),
    "gateway": ("the gateway", ("uvicorn", "httptools", "websockets")),
    "postgres": ("PostgreSQL", ("psycopg",)),
    "temporal": ("turns on Temporal", ("temporalio",)),
    "editors": ("editors", ("acp",)),
    "mcp": ("MCP servers", ("mcp",)),
    "keyring": ("the system's keyring", ("keyring",)),
    "otel": ("OpenTelemetry", ("opentelemetry",)),
}


def missing_extras(*extras: str) -> str:
    """The line that says what to install; empty if these extras are installed. Nothing is imported."""
    missing = [extra for extra in extras if any(importlib.util.find_spec(name) is None for name in EXTRAS[extra][1])]
    parts = " and ".join([EXTRAS[extra][0] for extra in missing])
    return f"support for {parts} is not installed: pip install 'turnwise[{','.join(missing)}]'" if missing else ""


def require_extras(*extras: str) -> None:
    """Raise CallerError if one of these extras is not installed."""
    if line := missing_extras(*extras):
        raise CallerError(line)
