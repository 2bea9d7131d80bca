"""Draw the tables in docs/ that stand in the code as data: finish reasons, losses, providers, outcomes, options, checks.

Usage: python scripts/draw_tables.py     (tests/test_docs.py checks that they are up to date)
"""

import ast
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path

import click
import msgspec

from turnwise.agent.agent_options import GROUP_OF, OF_MODEL, written
from turnwise.coding_agent.modes import TABLE as MODE_TABLE
from turnwise.coding_agent.options import NAMES_A_MODEL
from turnwise.lab.endpoint_check.probes import OTHER_WAYS, PROBES
from turnwise.lab.endpoint_check.rule_probes import (
    CALL_FORMS,
    RULE_PROBES,
    UNASKED,
    AskedSoFar,
    RuleAnswer,
    RuleProbe,
    row_fields,
)
from turnwise.lab.endpoint_check.shapes import MEANINGS, ORDER, WEIGHTS
from turnwise.lab.families.family import LabFamily
from turnwise.lab.strict.verdicts import FamilyJudge
from turnwise.relay.breaches import BREACHES, COMMON_SOURCES, Whose, breach_of
from turnwise.rules.answer_room import OUTCOMES
from turnwise.settings.options import OptionRow, rows, rows_from
from turnwise.terminal.compare import compare_command as compare
from turnwise.terminal.run import chat_command as chat
from turnwise.wire import family as registry
from turnwise.wire.family import Family
from turnwise.wire.profiles import MARK_WAYS, CacheWay, Profile, builtin_profiles
from turnwise.wire.relay_facts import FieldRule, RelayFacts, relay_facts

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "turnwise"
FACTS = {name: relay_facts(name) for name in registry.MODULES}
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
        "The tables list the words with which providers say why a response ended, and what turnwise makes of each. If a",
        "provider sends a word of another API, turnwise reads it as that API means it. If no API has the word, turnwise keeps it",
        "in `provider_finish`, and a repair names it. The reason then depends on the response: with tool calls it is",
        "`tool_calls`, without calls it is `stop`. If a response of the Responses API is `incomplete` for an unknown reason, the",
        "reason is `cut`.",
        "",
        "Some words say that the model called a tool, and that the server could not read the call (`MALFORMED_FUNCTION_CALL`).",
        "Groq reports the same as an error, `tool_use_failed`. turnwise tells the model so and asks again, within the limits of",
        "the run.",
        "",
        "If a stream ends without such a word, the reason is `cut`. If it ends without the word but with its API's end mark,",
        "the response counts as complete, unless its usage, its length or its arguments show that the output limit cut it.",
    ]
    for family in families():
        lines += ["", f"## {family.name}"]
        lines += table(
            ("the provider's word", "turnwise's word"),
            ((f"`{word}`", f"`{ours}`") for word, ours in sorted(family.finish_reasons.items())),
        )
    return "\n".join(lines) + "\n"


def losses() -> str:
    lines = [
        "# What a family cannot carry",
        DRAWN,
        "An API family is a wire format, such as `openai_chat`. turnwise holds requests and responses in one form of its own. It",
        "encodes a request into the family's format, and decodes a response from it. The [gateway](gateway.md) also does the",
        "opposite: it decodes requests and encodes responses. No format can carry everything, so something changes if a session",
        "moves to a model of another family, or if the gateway translates between two families.",
        "",
        "The tables list what changes when turnwise encodes a request or a response and then decodes it again. Nothing else",
        "changes: the tests check this with generated requests and responses. The column `in` says whether this happens in",
        "requests, in responses or in both. The [glossary](glossary.md) explains words such as part, provider item, opaque data,",
        "finish reason and repair.",
    ]
    for family in families():
        lines += ["", f"## {family.name}"]
        lines += table(("what", "in", "becomes"), ((loss.what, loss.direction, loss.becomes) for loss in family.losses))
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
        "`caches` is how the provider is asked to keep prompts (below). Behind the gateway `openai` serves each request by",
        "one of OpenAI's two APIs ([which one](gateway.md#both-of-openais-apis)).",
        "",
    ]
    lines += table(
        ("name", "what", "API family", "address", "key", "first event", "caches"),
        (
            (
                f"`{one.name}`",
                one.title,
                one.family,
                f"`{address(one.base_url)}`" if one.base_url else "`--base-url`",
                keys(one.api_key_env),
                f"{one.first_event_s:g} s",
                CACHES[one.cache][0],
            )
            for one in builtin_profiles().values()
        ),
    )
    lines += [
        "",
        "## Ollama: two APIs",
        "`ollama` speaks Chat Completions. Ollama's server then takes a window of its own choice, and cuts a longer prompt",
        "in silence. `ollama-native` speaks Ollama's own API at the same server. There each request says how large the",
        "window has to be: the prompt and its answer, rounded up to a power of two, so that the server seldom loads the",
        "model again. The server takes no more than the model was made for. What does not fit even then is refused, and the",
        'run shortens its history, as at any other provider. `Model("ollama-native:qwen3:8b", extra={"options": {"num_ctx":',
        "16384}})` sets the window yourself. Servers older than the field `truncate` still cut a prompt that is longer than",
        "the model's own limit.",
        "",
        "`cohere` speaks Cohere's v2 API, and no other: answers of v1 are refused by name. Clients of the gateway speak",
        "neither API; both are upstreams.",
        "",
        "## Prompt caches",
        'What a request asks for with `cache="auto"` and `cache="1h"` ([what it saves](billing.md#prompt-caches)). Providers',
        "that are not in this table are asked for nothing: they keep prompts by themselves, or not at all.",
        "",
    ]
    lines += table(
        ("name", "what is sent", "for which models", "with `1h`", "source"),
        (
            (f"`{one.name}`", CACHES[one.cache][1], cached_models(one), for_longer(one), one.cache_source)
            for one in builtin_profiles().values()
            if one.cache != "unasked"
        ),
    )
    lines += ["", *ADD_AN_ENDPOINT]
    return "\n".join(lines) + "\n"


ADD_AN_ENDPOINT = """## Add an endpoint
An endpoint that speaks one of the API families needs data and no code. All files are in `src/turnwise`.

1. Add a row to `wire/profiles.toml`: its family, title, address, the variables of its key, and each quirk, with the page that
   says it. A field that you leave out is as in the family's own API.
2. Add its prices to `journal/price_plans.toml`: below `[tables]` the table of `genai-prices` that holds for it, or below
   `[plans]` a row for each model. Without a price its cost is unknown.
3. If the [first start](cli.md#the-first-start) shall suggest a model where its key is set, add one to
   `settings/suggested_models.toml`. The model needs a row in `settings/model_limits.toml`.
4. Draw this page (`python scripts/draw_tables.py`), run `pytest tests/wire/test_profiles.py tests/terminal/test_first_start.py`,
   and ask the endpoint itself: `turnwise check NAME:MODEL` ([what it asks](check.md)).
""".splitlines()


CACHES: dict[CacheWay, tuple[str, str]] = {
    "unasked": ("not asked", ""),
    "top": ("marks", "`cache_control` at the top of the body, and on tools, system texts and content blocks"),
    "blocks": ("marks", "`cache_control` on tools, system texts and content blocks"),
    "parts": ("marks", "`cache_control` on content parts"),
    "messages": ("marks", "`cache_control` on content parts and on tool messages"),
    "key": ("key", "`prompt_cache_key`"),
}
"""In a word, and whole."""


def cached_models(profile: Profile) -> str:
    words = " or ".join(f"`{word}`" for word in profile.cache_models)
    without = ", ".join(f"`{word}`" for word in profile.cache_not_models)
    some = f"those with {words} in their names" if words else "all"
    return f"{some}, but not with {without}" if without else some


def for_longer(profile: Profile) -> str:
    if profile.cache in MARK_WAYS:
        short = ", ".join(f"`{word}`" for word in profile.cache_short_models)
        return 'each with `"ttl": "1h"`' + (f", but not with {short}" if short else "")
    if not profile.cache_day_models:
        return "the same"
    names = ", ".join(f"`{name}`" for name in profile.cache_day_models)
    return f'also `"prompt_cache_retention": "24h"` for {names}, dated names too; else the same'


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


def options() -> str:
    lines = [
        "# Options",
        DRAWN,
        "What a run can be told, and where. The command line holds over a continued session, the session over the project's",
        "`turnwise.toml`, and that over the user's own ([where they are](limits.md#files-of-settings)). `TURNWISE_MODEL` and",
        "`TURNWISE_BASE_URL` come after the session. Each option is decided by itself. What each one means stands with",
        "[the command line](cli.md#turnwise-run), which has further options for one run alone.",
        "",
        "A project's file may have come from elsewhere. So it can only lower some options, or only switch them off; others it",
        "cannot say at all. It lowers what your own file says; if that says nothing, it lowers the default. A limit without a",
        "default is lowered by any number.",
        "",
    ]
    lines += table(
        (
            "option",
            "value",
            "command line",
            "`compare`",
            "your file",
            "a project's file",
            "Python",
            "kept by a session",
            "unless set",
        ),
        (
            (
                f"`{row.name}`",
                value_of(row),
                said_at_start(row),
                "yes" if row.is_from("compare") else "",
                "yes" if row.is_from("file") else "",
                PROJECT[row.option.project] if row.is_from("file") else "",
                python_of(row),
                kept_of(row),
                row.option.default,
            )
            for row in rows()
        ),
    )
    lines += [
        "",
        "Python: what `Agent(...)` and its runs take. A run's option overrides its agent's.",
        "Values have the same ranges in Python, but for `retries`: `RetryPolicy(attempts=...)` takes any number from 1.",
        "A session keeps model, address and key variable together: with another model it keeps none of the three.",
    ]
    return "\n".join(lines) + "\n"


PROJECT = {"says": "yes", "lowers": "may lower it", "switches off": "may switch it off", "never": "no"}
OWN_WORDS = {"model": "`Agent(MODEL)`", "max_steps": "`limits=MaxSteps(...)`"}


def value_of(row: OptionRow) -> str:
    if row.choices:
        return ", ".join(f"`{one}`" for one in row.choices)
    if row.kind is bool:
        return "yes or no"
    if row.kind is Decimal:
        return "US dollars"
    if row.kind == tuple[str, ...]:
        return "names, in order"
    return row.span or ("a table" if row.name == "model_limits" else "a name")


def flags_of(row: OptionRow) -> str:
    return ", ".join(f"`{flag}`" for flags in row.flags for flag in flags.split("/"))


def said_at_start(row: OptionRow) -> str:
    flags = flags_of(row) if row.is_from("command line") else ""
    return f"{flags}, `TURNWISE_{row.name.upper()}`" if row.is_from("environment") else flags


def python_of(row: OptionRow) -> str:
    option = row.option
    if option.limit is not None:
        return f"`limits={option.limit.__name__}(...)`"
    if option.setting:
        return f"`{written('settings', f'Settings({option.setting}=...)')}`"
    if row.name in GROUP_OF or row.name in OF_MODEL:
        return f"`{written(row.name)}`"
    return OWN_WORDS.get(row.name) or option.python


def kept_of(row: OptionRow) -> str:
    option = row.option
    if not (option.kept or option.limit or option.setting) and row.name not in NAMES_A_MODEL:
        return option.kept_only
    return "with its model" if option.is_of_model or row.name in NAMES_A_MODEL else "yes"


def options_of_run() -> Iterator[str]:
    def meaning(row: OptionRow) -> str:
        return f"{row.option.page}. Unless set: {row.option.default}" if row.option.default else row.option.page

    return table(("option", "meaning"), ((flags_of(row), meaning(row)) for row in rows_from("command line")))


def as_for_run(command: click.Command, *, end: str) -> Iterator[str]:
    """The options that `command` has as `run` has them, in one row: those with a row of their own are others."""
    of_run = {tuple(param.opts) for param in chat.params if isinstance(param, click.Option)}
    names = [
        ", ".join(f"`{flag}`" for flag in param.opts) + "".join(f"; `{flag}`" for flag in param.secondary_opts)
        for param in command.params
        if tuple(param.opts) in of_run and not (param.multiple and param.name == "models")
    ]
    return table(("option", "meaning"), [("; ".join(names), f"as for `run`; limits are those of each {end}")])


def command_line() -> str:
    """The page as it stands, with its drawn tables drawn anew."""
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    for name, lines in {
        "run": options_of_run(),
        "chat": as_for_run(chat, end="turn"),
        "compare": as_for_run(compare, end="run"),
    }.items():
        begin = f"<!-- options of {name}: drawn by scripts/draw_tables.py -->\n"
        before, _, rest = page.partition(begin)
        _, end, after = rest.partition("<!-- end -->\n")
        assert end, f"docs/cli.md has no place for the options of {name}"
        page = "".join([before, begin, *[f"{line}\n" for line in lines], end, after])
    return page


def permissions() -> str:
    """The page as it stands, with the table of modes drawn anew."""
    before, begin, rest = (
        (DOCS / "permissions.md")
        .read_text(encoding="utf-8")
        .partition("<!-- modes: drawn by scripts/draw_tables.py -->\n")
    )
    _, end, after = rest.partition("<!-- end -->\n")
    assert end, "docs/permissions.md has no place for the modes"
    lines = table(("mode", "what it means"), ((f"`{name}`", row.meaning) for name, row in MODE_TABLE.items()))
    return "".join([before, begin, *[f"{line}\n" for line in lines], end, after])


def check() -> str:
    lines = [
        "# What a check asks and sees",
        DRAWN,
        "[`turnwise check`](cli.md#turnwise-check) sends these requests, in this order. `--only` takes their names. If the",
        "server refuses one as wrong (status 400), turnwise tries the other ways of the table in order. It keeps the first way",
        "that the server takes, and puts it into the profile.",
        "",
    ]
    lines += table(
        ("name", "what is asked", "other ways, if it is refused"),
        (
            (
                f"`{probe.name}`",
                probe.title,
                ", ".join([f"`{field} = {json.dumps(value)}`" for field, value in OTHER_WAYS.get(probe.name, ())]),
            )
            for probe in PROBES
        ),
    )
    lines += [
        "",
        "`result` and `forced` go on from the model's own call. If it made none, or a large one, they go on from an invented",
        "one. Gemini wants the signature of a thought in a call, so there they are left out.",
    ]
    for weight in reversed(ORDER):
        lines += ["", f"## `{weight}`: {WEIGHTS[weight]}", ""]
        found = sorted((name, one.words) for name, one in MEANINGS.items() if one.weight == weight)
        lines += table(("name in `--json`", "what it means"), ((f"`{name}`", words) for name, words in found))
    return "\n".join([*lines, *rules()]) + "\n"


def rules() -> list[str]:
    """What `--rules` asks, and the fields of the row that rest on each answer."""
    lines = [
        "",
        "## Rules of a server",
        "",
        "`turnwise check MODEL --rules` sends these requests in place of those above, and one more: a conversation as turnwise",
        "writes it by the row that it has found. A request that only makes sense after a refusal is left out otherwise. The last",
        "column names the fields of the [row](dialects.md) that rest on the answer. Where it is empty, turnwise's requests do",
        "not need the form.",
        "",
    ]
    lines += table(
        ("name in `--json`", "what is asked", "fields of the row"),
        ((f"`{probe.name}`", probe.title, _decided_by(probe)) for probe in RULE_PROBES),
    )
    return [*lines, "", "It does not ask:", "", *[f"- {one}" for one in UNASKED]]


def _decided_by(probe: RuleProbe) -> str:
    """With the other answers as they are where it is sent."""
    taken: dict[str, RuleAnswer] = {one.name: "taken" for one in RULE_PROBES}
    forms = list(CALL_FORMS)
    earlier = forms[: forms.index(probe.name)] if probe.name in forms else []
    before: dict[str, RuleAnswer] = {**taken, **_refused(*earlier)}
    if not probe.when(_so_far(before)):
        sets = [{**taken, **_refused(one.name)} for one in RULE_PROBES]
        before = next(answers for answers in sets if probe.when(_so_far(answers)))
    one, other = row_fields(_so_far(before)), row_fields(_so_far({**before, **_refused(probe.name)}))
    nothing = object()
    fields = [field for field in {**other, **one} if one.get(field, nothing) != other.get(field, nothing)]
    return ", ".join([f"`{field}`" for field in fields])


def _refused(*names: str) -> dict[str, RuleAnswer]:
    return dict.fromkeys(names, "refused")


def _so_far(answers: dict[str, RuleAnswer]) -> AskedSoFar:
    return AskedSoFar(model="m", answers=answers)


WHOSE: dict[Whose, str] = {
    "provider": "The provider breaks a rule",
    "failure": "A request fails for a moment",
    "model": "The model writes something else",
    "limit": "An output limit cuts the response",
    "gateway": "The gateway or the API",
}


def repairs() -> str:
    """The kinds of repair, by whose doing they are, and the sources of their rules."""
    lines = [
        "# Repairs of the gateway",
        DRAWN,
        "The header, the log, `/metrics` and [the report](gateway.md#the-report) use these names. Beside each stands the rule",
        "that would make it needless, in our words. The sources stand below. What only the order of events shows (indices, ids",
        "and names in pieces, what follows an end) is told of streams alone: a whole answer has no events.",
    ]
    for whose, heading in WHOSE.items():
        lines += ["", f"## {heading}"]
        kinds = [(kind, breach) for kind, breach in sorted(BREACHES.items()) if breach.whose == whose]
        lines += table(("kind", "rule", "source"), ((f"`{kind}`", breach.rule, breach.topic) for kind, breach in kinds))
    apart = [
        (f"`{kind}`", name, found.rule)
        for kind, breach in sorted(BREACHES.items())
        for name in registry.MODULES
        if (found := breach_of(kind, family=name)) is not None and found is not breach
    ]
    lines += ["", "## Where an API says otherwise", *table(("kind", "family", "rule"), apart)]
    lines += ["", "## Sources"]
    common = [(topic, "all", said) for topic, said in COMMON_SOURCES.items()]
    topics = dict.fromkeys(topic for facts in FACTS.values() for topic in facts.sources)
    own = [(topic, name, facts.sources[topic]) for topic in topics for name, facts in FACTS.items()]
    lines += table(("source", "family", "where"), [*own, *common])
    return "\n".join(lines) + "\n"


def gateway_fields() -> str:
    """What becomes of a request's fields where the upstream's family does not have them."""
    lines = [
        "# What a request carries through the gateway",
        DRAWN,
        "Between equal families a body goes up as the client wrote it. An upstream of another family gets messages, tools, tool",
        "choice, images and files, reasoning, structured output, stop sequences and cache marks as its own API has them",
        "([what a family cannot carry](losses.md)). The tables say what becomes of further fields, and of such values of",
        "`response_format`, `tool_choice` or `text.format` as no other family has.",
        "",
        "- **refused**: without the field the answer would be another one. The client gets an error that names the field.",
        "- **goes as**: the upstream's own field, where its family has one; else the repair `not_carried` tells of it.",
        "- **served**: the gateway does what it asks for.",
        "",
        "Any other field is left out, and the repair `not_carried` tells of it.",
    ]
    for source, facts in FACTS.items():
        lines += ["", f"## From clients of {facts.title}"]
        lines += table(
            ("field", "to another family"),
            [(f"`{name}`", rule_in_words(rule, source=source)) for name, rule in facts.rules.items()],
        )
    lines += [
        "",
        "## What is stored at the provider",
        "With the gateway's key each client could read what the others stored there. So these are refused, for any upstream,",
        "unless the route belongs to one client (`one_client`), or says whose it is ([`stored`](gateway-stored.md)). A body",
        "without `store` is served as `store: false`.",
    ]
    lines += table(
        ("clients of", "fields", "keys within content and tools"),
        [
            (
                facts.title,
                ", ".join([f"`{name}`" for name in facts.stored.fields]),
                ", ".join([f"`{name}`" for name in facts.stored.names]),
            )
            for facts in FACTS.values()
        ],
    )
    return "\n".join(lines) + "\n"


def rule_in_words(rule: FieldRule, *, source: str) -> str:
    if rule.ours:
        return "served"
    others = [facts for name, facts in FACTS.items() if name != source and rule.means in facts.takes]
    if others:
        return "goes as " + ", ".join([f"`{facts.takes[rule.means]}` to {facts.title}" for facts in others])
    harmless = ", ".join([f"`{value}`" for value in rule.harmless])
    if rule.refuses:
        return f"refused, unless it is {harmless}" if harmless else "refused"
    return f"told, unless it is {harmless}"


def rooms() -> str:
    """The rooms of the package from their READMEs, each below all that it imports, with a picture of the same."""
    facts = {path.parent.name: facts_of_room(path) for path in sorted(SOURCE.glob("*/README.md"))}
    uses = {room: {one for one in fact["Imports"].split(", ") if one in facts} for room, fact in facts.items()}
    floors: dict[str, int] = {}
    while len(floors) < len(facts):
        for room in sorted(facts.keys() - floors.keys()):
            if uses[room] <= floors.keys():
                floors[room] = max((floors[one] + 1 for one in uses[room]), default=0)
    order = sorted(facts, key=lambda room: (floors[room], room))
    lines = [
        "# Rooms",
        DRAWN.replace("change the data", "change the READMEs in `src/turnwise`"),
        "Each room is a folder of `src/turnwise`. A room imports rooms of lower floors only. `errors.py` has every exception.",
        "",
    ]
    cells = [(str(floors[room]), f"`{room}`", facts[room]["what"], facts[room]["Begin at"]) for room in order]
    lines += table(("floor", "room", "what it does", "begin at"), cells)
    lines += [
        "",
        "An arrow leads from a room to rooms that it imports. What those import in turn has no arrow of its own.",
        "",
        "```mermaid",
    ]
    lines += ["flowchart BT"]
    for room in order:
        below = {deep for one in uses[room] for deep in reached(one, uses=uses)}
        lines += [f"    {room} --> {one}" for one in sorted(uses[room] - below)]
    return "\n".join([*lines, "```"]) + "\n"


def facts_of_room(path: Path) -> dict[str, str]:
    text = path.read_text(encoding="utf-8")
    return {"what": text.splitlines()[1], **dict(re.findall(r"^- ([\w ]+): (.+)$", text, re.MULTILINE))}


def reached(room: str, *, uses: dict[str, set[str]]) -> set[str]:
    """The rooms that a room imports, with all that these import."""
    return uses[room] | {deep for one in uses[room] for deep in reached(one, uses=uses)}


EXAMPLE = "anthropic_messages"  # the family that the page shows

# What becomes of a family that a module outside its places does not name.
WITHOUT = {
    "agent/models.py": "right: names of models begin with that word",
    "coding_agent/choice.py": "right: what is meant where nothing says which",
    "relay/stored_ids.py": "a default: its provider stores at OpenAI's paths; nothing that an answer has stored has an owner",
    "rules/provider_tool_costs.py": "wrong: what a tool on the provider's side costs beside the tokens is not told",
    "rules/recovery.py": "a default: where an API's own data stands beside a part, a count of tokens proves no cut",
    "telemetry/names.py": "a default: the row's name is the provider's",
    "terminal/gateway_check.py": "right: the API of which most malformed streams are",
    "testing/scripted_model.py": "right: what is meant where nothing says which",
    "turn/config.py": "right: what journals mean that do not say it",
    "wire/family.py": "KeyError",
    "wire/profiles.py": "an error for its rows; `sent_max_tokens` has a default: no limit of output goes out unasked",
}


def add_a_family() -> str:
    """How a further family comes in: the files of one that is there, and what each record of it must say."""
    tests = sorted((ROOT / "tests").rglob("*.py"))
    from_code = r"import .*\b(MODULES|JUDGES)\b|get_args\(FamilyName\)|turnwise\.lab\.families import FAMILIES"
    takes_all = [path for path in tests if re.search(from_code, path.read_text(encoding="utf-8"))]
    lines = [
        "# Add an API family",
        DRAWN.replace("change the data", "change the script or the code"),
        "An API family is a wire format, such as `openai_chat`. What turnwise knows of one stands in three places: a folder in",
        "`wire`, a module in `lab/strict`, a module in `lab/families`. The lab's modules import nothing of `wire`, so they can",
        f"judge it. Go in this order, with `{EXAMPLE}` as the example. `NAME` is the name of the new family.",
        "",
        "## 1. The judge: `lab/strict/NAME.py`",
        "Write what the real API refuses, with its status and its words. Each check names its source: a recorded refusal, the",
        "API's documentation, or a public report. The module ends with `JUDGE`. Add the module to the list in",
        "`lab/strict/__init__.py`.",
        "",
        "## 2. The lab's other half: `lab/families/NAME.py`",
        "Write how a request is read, how an answer is played, and what a naive and a strict client make of a stream. The module",
        "ends with `FAMILY`. Add the module to the list in `lab/families/__init__.py`.",
        "",
        "`stream_decoder` takes any bytes. The lab sends each stream as server-sent events, or as lines of JSON where the",
        "record says `lines`. The gateway (`gateway/delivery.py`) writes to its clients as server-sent events or a JSON",
        "array. A family with other frames needs changes there only if clients of the gateway speak it: with `has_door`",
        "false in its `RelayFacts` it is an upstream only, and none of the gateway's paths is its own.",
        "",
        "## 3. The format: `wire/NAME/`",
        "Write bytes to frames and requests to bytes. The folder exports `FAMILY`. Its field `traits` says what rules and the",
        "turn have to know. Go through all fields of `FamilyTraits` (`vocab/frames.py`): each default means that the API",
        "refuses nothing of the kind. The folder's `relay_facts.py` has `RELAY_FACTS`. The gateway loads it, and so do",
        "`messages_from` and `messages_to`; a run does not.",
        "",
        "Add the name to `FamilyName` in `wire/profiles.py`, and the folder to `MODULES` in `wire/family.py`. Add a row with the",
        "family's own name to `wire/profiles.toml`. It is required: it is for endpoints that a user gives by their address, and",
        "`messages_to`, `turnwise check` and `ScriptedModel` look it up. Each provider gets a row of its own.",
        "",
        f"The files of `wire/{EXAMPLE}`:",
        "",
        *table(("file", "what it does"), [(f"`{path.name}`", first_sentence(path)) for path in FAMILY_FILES]),
        "",
        "What each record must say; without it the module cannot be imported. Other fields have defaults. Comments beside the",
        "fields tell what they mean.",
        "",
        *table(
            ("record", "stands in", "must say"), [(f"`{one.__name__}`", place, needed(one)) for one, place in RECORDS]
        ),
        "",
        "## 4. What still names families",
        "Five files outside the three places have to name the new family: `wire/profiles.py`, `wire/profiles.toml`,",
        "`wire/family.py`, `lab/strict/__init__.py`, `lab/families/__init__.py`. `tests/wire/test_every_family.py` fails until",
        "all do. These files name a family, too. Look whether the new one belongs there:",
        "",
        *table(("file", "without the new family"), [(f"`{name}`", WITHOUT[name]) for name in naming_families()]),
        "",
        "Texts for people list the families in `settings/options.py`, and in the help of `terminal` by way of example.",
        "",
        "## 5. The tests",
        "These take the families from the code:",
        ", ".join([f"`{path.relative_to(ROOT).as_posix()}`" for path in takes_all]) + ".",
        "",
        f"Others have a list or a body of each family. Find them with `grep -rl {EXAMPLE} tests`. Each family also has tests of",
        f"its own streams, requests, faults and losses: `tests/wire/test_{EXAMPLE}_*.py` are those of the example.",
        "",
        "Then draw the pages anew: `python scripts/draw_tables.py`, `python scripts/draw_reference.py`.",
    ]
    return "\n".join(lines) + "\n"


FAMILY_FILES = sorted((SOURCE / "wire" / EXAMPLE).glob("*.py"))
RECORDS: tuple[tuple[type[msgspec.Struct], str], ...] = (
    (FamilyJudge, "`lab/strict/NAME.py`"),
    (LabFamily, "`lab/families/NAME.py`"),
    (Family, "`wire/NAME/__init__.py`"),
    (RelayFacts, "`wire/NAME/relay_facts.py`"),
)


def needed(record: type[msgspec.Struct]) -> str:
    """The fields of a record that have no default."""
    return ", ".join([f"`{field.name}`" for field in msgspec.structs.fields(record) if field.required])


def naming_families() -> Iterator[str]:
    """The modules outside the places of families that have a family's name as a text of its own."""
    names = {f'"{name}"' for name in registry.MODULES}
    own = (*[f"wire/{name}/" for name in registry.MODULES], "lab/strict/", "lab/families/")
    for path in sorted(SOURCE.rglob("*.py")):
        is_own = path.relative_to(SOURCE).as_posix().startswith(own)
        if not is_own and any(name in path.read_text(encoding="utf-8") for name in names):
            yield path.relative_to(SOURCE).as_posix()


def first_sentence(path: Path) -> str:
    told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return re.split(r"(?<=\.)\s", told.partition("\n\n")[0])[0].replace("\n", " ")


PAGES = {
    "rooms.md": rooms,
    "add-a-family.md": add_a_family,
    "gateway-fields.md": gateway_fields,
    "finish-reasons.md": finish_reasons,
    "losses.md": losses,
    "providers.md": providers,
    "outcomes.md": outcomes,
    "options.md": options,
    "cli.md": command_line,
    "permissions.md": permissions,
    "check.md": check,
    "repairs.md": repairs,
}


def main() -> None:
    for name, draw in PAGES.items():
        (DOCS / name).write_text(draw(), encoding="utf-8")
        print(f"docs/{name}")


if __name__ == "__main__":
    main()
