"""Draw docs/dialects.md from the rules that the lab plays (src/turnwise/lab/strict/dialects.toml).

Usage: python scripts/draw_dialects.py     (tests/lab/test_dialects.py checks that it is up to date)
"""

from pathlib import Path

from turnwise.lab.strict.dialects import Rule, ServerDialect, Sureness, builtin_dialects
from turnwise.wire.profiles import builtin_profiles

PAGE = Path(__file__).resolve().parents[1] / "docs" / "dialects.md"
BAR = "\\|"  # a bar inside a cell
SURE: dict[Sureness, tuple[str, str]] = {
    "source": ("source code", "the server's own code, or its provider's published validator, refuses it"),
    "documentation": ("documentation", "the provider's documentation says so"),
    "measured": ("measured", "several reports saw the refusal, or one saw it beside a request that was taken"),
    "once": ("reported once", "one report, with nothing beside it: it may be wrong, or hold for one model only"),
}
FAMILIES_OWN = ("openai", "openai-chat", "anthropic", "google", "gemini")  # whose API the judges of the families play
HEAD = """# Dialects
<!-- drawn by scripts/draw_dialects.py; change src/turnwise/lab/strict/dialects.toml, not this file -->
Servers that speak Chat Completions refuse what OpenAI's own server takes. This page lists the rules that are known, by the names
of `--model` ([providers](providers.md)). `turnwise lab --as NAME`, or `Lab(profile="NAME")`, plays them: the [lab](lab.md) then
refuses what that server refuses, with its status, its words and its form of error. A rule with models in its first column holds
for models with such a name only.

The rules say what a server refuses, not what turnwise sends. The date is that of the newest source; source code without a date
has the day on which it was read. A server may have changed since.
"""


def draw() -> str:
    dialects = builtin_dialects()
    lines = [HEAD, "| how sure | what it means |", "|---|---|"]
    lines += [f"| {word} | {meaning} |" for word, meaning in SURE.values()]
    drawn: list[ServerDialect] = []
    for name, dialect in dialects.items():
        same = [one for one in drawn if one.rules == dialect.rules]
        title = builtin_profiles()[name].title
        lines += [
            "",
            f"## {name}",
            f"{title}: the rules of [{same[0].name}](#{same[0].name})." if same else f"{title}.",
        ]
        if not same:
            lines += [
                "",
                "| rule | refused | status and message | source | date | how sure |",
                "|---|---|---|---|---|---|",
            ]
            lines += [row(rule) for rule in dialect.rules]
        drawn.append(dialect)
    own = [profile.name for profile in builtin_profiles().values() if profile.name not in dialects]
    judged = [name for name in own if name in FAMILIES_OWN]
    lines += [
        "",
        "## Other rows",
        f"{listed(judged)} are the servers whose API the lab's judges of the four families play.",
        f"No rule is known of {listed([name for name in own if name not in judged])}:",
        "the lab judges their requests by their family's API.",
        "",
    ]
    return "\n".join(lines)


def row(rule: Rule) -> str:
    which = f"`{rule.id}`" + (f", models `{rule.models}`" if rule.models else "")
    words = f"{rule.status} `` {rule.message} ``" if "`" in rule.message else f"{rule.status} `{rule.message}`"
    cells = (which, rule.refuses, words, "; ".join(map(link, rule.source)), rule.date, SURE[rule.sure][0])
    return f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |"


def link(source: str) -> str:
    """An issue or pull request at GitHub as a link, an address as it is."""
    repository, _, number = source.partition("#")
    if number.isdigit() and repository.count("/") == 1:
        return f"[{source}](https://github.com/{repository}/issues/{number})"
    return f"<{source}>" if source.startswith("https://") else source


def listed(names: list[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return ", ".join(quoted[:-1]) + (" and " if len(quoted) > 1 else "") + quoted[-1]


if __name__ == "__main__":
    PAGE.write_text(draw(), encoding="utf-8")
    print("docs/dialects.md")
