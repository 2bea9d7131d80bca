"""Draw the tables in docs/ that stand in the code as data: finish reasons, losses, providers, outcomes.

Usage: python scripts/draw_tables.py     (tests/test_docs.py checks that they are up to date)
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from turnwise.rules.stop import OUTCOMES
from turnwise.wire import registry
from turnwise.wire.family import Family
from turnwise.wire.profiles import builtin_profiles

DOCS = Path(__file__).resolve().parents[1] / "docs"
BAR = "\\|"  # a bar inside a cell
DRAWN = "<!-- drawn by scripts/draw_tables.py; change the data, not this file -->"


def families() -> list[Family]:
    return [registry.family(name) for name in registry.MODULES]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', BAR) for cell in row)} |"


def finish_reasons() -> str:
    lines = [
        "# Finish reasons",
        DRAWN,
        "Every provider's word for why a response ended, and ours. A word that is not here keeps its place in",
        "`provider_finish`, and a repair names it. A part of it may tell what it means (`length`, `safety`, `error`); else it is",
        "judged by what the response holds: `tool_calls` with calls, `stop` without. In Responses an unknown reason for",
        "`incomplete` is `cut`, as the status says.",
        "",
        "A stream that ends without a word is `cut`; with its API's end mark it counts as complete, unless its usage, length or",
        "arguments say that the limit cut it.",
    ]
    for family in families():
        lines += ["", f"## {family.name}"]
        lines += table(
            ("the provider's word", "ours"),
            ((f"`{word}`", f"`{ours}`") for word, ours in sorted(family.finish_reasons.items())),
        )
    return "\n".join(lines) + "\n"


def losses() -> str:
    lines = [
        "# What a family cannot carry",
        DRAWN,
        "Encode then decode loses this, and nothing else (tested for all generated requests and responses).",
    ]
    for family in families():
        lines += ["", f"## {family.name}"]
        lines += table(
            ("what", "where", "becomes"), ((loss.what, loss.direction, loss.becomes) for loss in family.losses)
        )
    return "\n".join(lines) + "\n"


def providers() -> str:
    lines = [
        "# Providers",
        DRAWN,
        "`--model NAME:MODEL`. A row names an endpoint and its quirks, with sources in `profiles.toml`; it is chosen by",
    ]
    lines += [
        "name, never guessed from an address. Endpoints without an address here want `--base-url`. `first event` is how long a",
        "stream may take to begin, unless `Deadlines(first_event_s=...)` says otherwise ([deadlines](deadlines.md)).",
        "",
    ]
    lines += table(
        ("name", "what", "API family", "address", "key", "first event"),
        (
            (
                f"`{one.name}`",
                one.title,
                one.family,
                f"`{address(one.base_url)}`" if one.base_url else "`--base-url`",
                keys(one.api_key_env),
                f"{one.first_event_s:g} s",
            )
            for one in builtin_profiles().values()
        ),
    )
    return "\n".join(lines) + "\n"


def address(url: str) -> str:
    return url.removeprefix("https://").removeprefix("http://")


def keys(names: Sequence[str]) -> str:
    return " or ".join(f"`{name}`" for name in names) or "none"


def outcomes() -> str:
    lines = [
        "# How a turn can end",
        DRAWN,
        "Stop reason, whether the answer is complete, and the exit code of `turnwise run`. Exit code 2 is a usage error.",
        "",
    ]
    lines += table(
        ("stop reason", "complete", "exit code"),
        ((f"`{one.stop_reason}`", str(one.complete).lower(), str(one.exit_code)) for one in OUTCOMES),
    )
    return "\n".join(lines) + "\n"


PAGES = {"finish-reasons.md": finish_reasons, "losses.md": losses, "providers.md": providers, "outcomes.md": outcomes}


def main() -> None:
    for name, draw in PAGES.items():
        (DOCS / name).write_text(draw(), encoding="utf-8")
        print(f"docs/{name}")


if __name__ == "__main__":
    main()
