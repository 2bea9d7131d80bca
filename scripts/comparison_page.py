"""What scripts/compare_libraries.py has seen, as docs/comparison.md."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from comparison_tasks import LIBRARIES, TASKS, Comparison, Library, ProgramFacts, RunFacts, Task

FOLDER = "../examples/comparison"
BAR = "\\|"  # a bar inside a cell
INTRODUCTION = """# turnwise beside pydantic-ai and openai-agents
<!-- drawn by scripts/compare_libraries.py; change the programs or the script, not this file -->
The same ten tasks, written with three libraries. Each program uses the best way that its library offers. Its first line names
this way. `No:` means that the library has no way of its own; then the program is the shortest workaround.

The programs ran against the [lab](lab.md) over HTTP, with the Responses API. Everything in these tables was seen in a run. Other
versions and other APIs may differ."""
LINES = """## The programs
The table counts lines of code, without blank lines, comments and docstrings; each import counts as one line. All
programs name their model as they would with OpenAI. pydantic-ai and openai-agents read the lab's URL from the environment.
turnwise does not read a URL from there, so the script writes it into turnwise's programs before it runs them. With a URL of your
own you write `Model("openai_responses:NAME", base_url=...)` in place of the name."""
TYPES = """## What a type checker knows
The table shows which type pyright (strict) sees for the result of the run, and how many errors it finds, if any."""
TYPOS = """## A typo in an option
One option of each program is misspelt. The cell says what the run does. `silent` means that the program prints and raises the
same as without the typo. `types` says whether pyright finds the typo."""
CUT = """## A call that the output limit cuts
The model writes a file, and the output limit cuts its call. In the first column, the smaller pieces that the model then tries
are not cut. In the next two columns they are cut as well. `retries=3` is an option of pydantic-ai; the other two libraries ran
without it. The last column repeats the first over another API. There the lab refuses a history with broken JSON in it. vLLM,
llama.cpp, Mistral and Groq parse this JSON, too; api.openai.com does not look at it."""
CAP = """## A cap of steps
The model searches until it has to answer. In the second column the program catches no exception and asks only once."""
END = """## Run it yourself
```sh
bash benchmarks/setup
python scripts/compare_libraries.py --check
```

The check lists what is different from this page. Without `--check` the script writes the results and the page again."""

WORD = re.compile(r"\w+")
Cell = Callable[[Task, Library, ProgramFacts], str]


def draw_page(seen: Comparison) -> str:
    versions = [(library.title, seen.versions[library.name]) for library in LIBRARIES]
    parts = [
        INTRODUCTION,
        "\n".join(_table(("library", "version"), versions)),
        LINES,
        _by_task(seen, _program),
        *[f"### {task.title}\n{_ways(seen, task)}" for task in TASKS],
        TYPES,
        _by_task(seen, _type),
        TYPOS,
        _by_task(seen, _typo),
        CUT,
        _by_library(seen, task="cut_call", first="cut once"),
        CAP,
        _by_library(seen, task="step_cap", first="the program"),
        END,
    ]
    return "\n\n".join(parts) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join([cell.replace('|', BAR) for cell in row])} |"


def _by_task(seen: Comparison, cell: Cell) -> str:
    rows = [
        [task.title, *[cell(task, library, seen.facts[library.name][task.name]) for library in LIBRARIES]]
        for task in TASKS
    ]
    return "\n".join(_table(("task", *[library.title for library in LIBRARIES]), rows))


def _program(task: Task, library: Library, facts: ProgramFacts) -> str:
    by_hand = ", by hand" if facts.way.startswith("No:") else ""
    return f"[{facts.lines}]({FOLDER}/{task.name}/with_{library.name}.py){by_hand}"


def _ways(seen: Comparison, task: Task) -> str:
    return "\n".join([f"- **{library.title}**: {seen.facts[library.name][task.name].way}" for library in LIBRARIES])


def _type(_task: Task, _library: Library, facts: ProgramFacts) -> str:
    errors = f", {facts.type_errors} errors" if facts.type_errors else ""
    return f"`{facts.type}`{errors}"


def _typo(_task: Task, _library: Library, facts: ProgramFacts) -> str:
    typo = facts.typo
    found = "found" if typo.type_errors else "not found"
    words = zip(WORD.findall(typo.right), WORD.findall(typo.wrong), strict=True)
    ((right, wrong),) = [(one, other) for one, other in words if one != other]
    return f"`{wrong}`: run {_happened(facts.ran, typo.ran, right)}; types {found}"


def _happened(before: RunFacts, after: RunFacts, right: str) -> str:
    if after == before or (after.raised, after.printed) == (before.raised, before.printed):
        return "**silent**"
    named = ", names the right one" if re.search(rf"Did you mean .*\b{right}\b", after.message) else ""
    return f"`{after.raised}`{named}" if after.raised else "another outcome"


def _by_library(seen: Comparison, *, task: str, first: str) -> str:
    """The program as it stands, and its variants."""
    variants = next(one.variants for one in TASKS if one.name == task)
    rows: list[list[str]] = []
    for library in LIBRARIES:
        facts = seen.facts[library.name][task]
        rows.append(
            [library.title, *[_outcome(ran) for ran in (facts.ran, *[facts.variants[one] for one in variants])]]
        )
    return "\n".join(_table(("library", first, *variants), rows))


def _outcome(ran: RunFacts) -> str:
    printed = "; ".join(ran.printed.splitlines())
    said = f"`{ran.raised}`: {ran.message}" if ran.raised else printed
    return f"{said} ({ran.requests} request{'' if ran.requests == 1 else 's'})"
