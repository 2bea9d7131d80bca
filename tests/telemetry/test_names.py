"""The names on spans and metrics are those of the conventions' package, and the page says which of them have moved."""

import importlib.metadata
import re
import tomllib
from pathlib import Path

from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from opentelemetry.semconv.attributes import error_attributes, http_attributes, server_attributes

from turnwise.telemetry import names
from turnwise.wire.profiles import builtin_profiles

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "telemetry.md").read_text()
CONVENTIONS = (gen_ai_attributes, gen_ai_metrics, error_attributes, http_attributes, server_attributes)


def known() -> set[str]:
    """Every name that the conventions' package has."""
    return {value for module in CONVENTIONS for value in vars(module).values() if isinstance(value, str)}


def ours() -> set[str]:
    """Every name with a point in it that turnwise writes."""
    return {
        value
        for value in vars(names).values()
        if isinstance(value, str) and re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", value)
    }


def test_every_name_is_the_conventions_or_begins_with_turnwise() -> None:
    """Issue 22: names are those of `gen_ai_attributes`; what is not stands below `turnwise.`."""
    own = {name for name in ours() if name.startswith("turnwise.")}
    assert len(ours()) > 40 and ours() - own <= known() | {"turnwise"}
    assert not own & known()


def test_operations_and_providers_are_the_conventions_words() -> None:
    """`gen_ai.operation.name` and `gen_ai.provider.name` are from closed lists, where these know the thing."""
    source = Path(gen_ai_attributes.__file__).read_text()
    values = set(re.findall(r'^    [A-Z_]+ = "([^"]+)"$', source, re.MULTILINE))
    assert {names.INVOKE_AGENT, names.CHAT, names.EXECUTE_TOOL, *names.PROVIDERS.values()} <= values
    assert names.PROVIDERS.keys() <= builtin_profiles().keys()


def test_the_page_says_which_version_and_which_names_have_moved() -> None:
    """Issue 22: the table in docs/ is what the installed package's own notes of deprecation say, version included."""
    version = importlib.metadata.version("opentelemetry-semantic-conventions")
    dev = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["dev"]
    assert f"opentelemetry-semantic-conventions=={version}" in dev and f"`{version}`" in PAGE
    source = Path(gen_ai_attributes.__file__).read_text()
    notes = dict(re.findall(r'^GEN_AI_\w+: Final = "([^"]+)"\n"""\nDeprecated: (.+?)\n"""', source, re.MULTILINE))
    moved = {name: note for name, note in notes.items() if not note.startswith("Moved to the")}
    rows = dict(
        re.findall(r"^\| `(gen_ai\.[\w.]+)` \| (.+?) \|$", PAGE.partition("## Names that have moved")[2], re.MULTILINE)
    )
    assert rows.keys() == moved.keys()
    for name, note in moved.items():
        replaced = re.match(r"Replaced by `([^`]+)`", note)
        assert rows[name] == (f"`{replaced[1]}`" if replaced else "removed"), name
    assert not ours() & moved.keys()
