"""Draw docs/dialects.md from the rules that the lab plays (src/turnwise/lab/strict/dialects.toml).

Usage: python scripts/draw_dialects.py     (tests/lab/test_dialects.py checks that it is up to date)
"""

from collections.abc import Callable
from pathlib import Path

from turnwise.lab.strict.dialects import Rule, ServerDialect, Sureness, builtin_dialects
from turnwise.wire.profiles import Profile, builtin_profiles

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

The tables say what a server refuses. Below each table stands what turnwise sends because of it. It does so while it writes a
request, so histories, journals and replays hold what was said. The gateway does the same with a client's conversation, and names
the field in the header `turnwise-not-carried`. A tool whose schema takes no object is left out there. Every server gets its
leading system texts as one message. Every server but OpenAI's gets several texts of a message as one string, and no empty text in
a message without calls. A tool's name in the history of another family goes up in a form that the API takes.

A server without rules here can teach turnwise. If it refuses a request by words that turnwise knows, the request goes once more
in another form, after two lessons at the most. A session keeps what it has learned of a server and model; the gateway keeps it
for a day. The repair is `dialect`. [`turnwise check MODEL --rules`](cli.md#rules-of-a-server) asks a server for its rules, and
prints a row for your own `turnwise.toml`.

The date is that of the newest source; source code without a date has the day on which it was read. A server may have changed
since.
"""

SENT: tuple[tuple[Callable[[Profile], bool], str], ...] = (
    (
        lambda row: row.later_system == "user",
        "A later system text goes as a user message that begins with `[System message]`.",
    ),
    (
        lambda row: row.behind_results == "assistant",
        "An assistant's `OK` goes between a tool result and a user message.",
    ),
    (
        lambda row: bool(row.joined_models),
        "With models that want turns, neighbours of one role without calls go as one message.",
    ),
    (lambda row: row.reasoning_stand_in == "", 'Calls without reasoning go with `reasoning_content: ""`.'),
    (lambda row: row.reasoning_stand_in == " ", 'Calls without reasoning go with `reasoning_content: " "`.'),
    (
        lambda row: bool(row.signature_stand_in),
        "Calls without a signature go with the stand-in that Google documents, but not to models that ask for none.",
    ),
    (lambda row: row.calls_content == "", 'Calls without a text go with `content: ""`.'),
    (
        lambda row: row.tool_choices == ("auto",) and not row.tool_choices_models,
        "Every choice of tools goes in words, as the last user message.",
    ),
    (
        lambda row: bool(row.tool_choices_models),
        "With the models of that rule, every choice of tools goes in words, as the last user message.",
    ),
    (
        lambda row: row.tool_choices == ("auto", "none"),
        "A forced call is asked for in words, as the last user message.",
    ),
    (
        lambda row: row.strict_messages,
        "The gateway writes `developer` as `system`, and a result's list of texts as one string.",
    ),
    (
        lambda row: row.message_fields is not None or row.reasoning_stand_in is not None,
        "The gateway writes reasoning in the field that the server takes.",
    ),
    (
        lambda row: row.needs_user,
        "The gateway sends lone system texts as the user's. If an assistant begins, a line of the user stands before it.",
    ),
    (
        lambda row: row.one_assistant_last,
        "If a client's last two messages are an assistant's texts, the gateway puts a line of the user behind them.",
    ),
    (
        lambda row: row.user_last,
        "If a client's last message is an assistant's text, the gateway puts a line of the user behind it.",
    ),
    (lambda row: row.files == "none", "A line of text stands in place of a file."),
    (lambda row: row.tool_call_id_length is not None, "Ids of calls get the length that the server wants."),
    (
        lambda row: "schema" in row.refused_tools,
        "A tool's schema goes in a form that is taken. If that says less, the tool's description holds the schema.",
    ),
    (
        lambda row: bool(row.renamed_fields),
        "The gateway renames or leaves out a body field that is refused, if the answer stays the same.",
    ),
    (
        lambda row: bool(row.tool_names),
        "A tool whose name is refused goes under another one; the answer has its own again.",
    ),
    (lambda row: row.output == "json_object", "The schema of an answer goes in words, with `json_object`."),
)
"""What a row changes in a request, in the words of the page."""


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
            if sent := [words for holds, words in SENT if holds(builtin_profiles()[name])]:
                lines += ["", "What turnwise sends:", "", *[f"- {words}" for words in sent]]
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
