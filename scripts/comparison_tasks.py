"""The ten tasks that scripts/compare_libraries.py runs, and what it keeps of them."""

import msgspec


class Library(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    title: str
    distribution: str


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """`typos` is by library: an option as it stands in the program, and misspelt. `variants` are runs with something replaced in
    the program, by title and library."""

    name: str
    title: str
    typos: dict[str, tuple[str, str]]
    variants: dict[str, dict[str, tuple[str, str]]] = {}


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One run: what it printed, the exception that ended it, the requests that the lab received and refused."""

    printed: str
    raised: str = ""
    message: str = ""
    requests: int
    refused: int = 0


class TypoFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The run with the misspelt option; `type_errors` are those of pyright strict that the typo added."""

    right: str
    wrong: str
    type_errors: int
    ran: RunFacts


class ProgramFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One task in one library. `way` is the program's own docstring; `type` is what pyright reveals of the outcome."""

    way: str
    lines: int
    type: str
    type_errors: int
    ran: RunFacts
    typo: TypoFacts
    variants: dict[str, RunFacts] = {}


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Versions by library, and facts by library and task."""

    versions: dict[str, str]
    facts: dict[str, dict[str, ProgramFacts]]


LIBRARIES = (
    Library(name="turnwise", title="turnwise", distribution="turnwise"),
    Library(name="pydantic_ai", title="pydantic-ai", distribution="pydantic-ai-slim"),
    Library(name="openai_agents", title="openai-agents", distribution="openai-agents"),
)


def _by_library(
    turnwise: tuple[str, str], pydantic_ai: tuple[str, str], openai_agents: tuple[str, str]
) -> dict[str, tuple[str, str]]:
    return {"turnwise": turnwise, "pydantic_ai": pydantic_ai, "openai_agents": openai_agents}


TASKS = (
    Task(
        name="typed_output",
        title="Typed output",
        typos=_by_library(*[("output_type=", "output_typ=")] * 3),
    ),
    Task(
        name="dependency",
        title="A dependency in a tool",
        typos=_by_library((" deps=", " dep="), (" deps=", " dep="), (" context=", " contxt=")),
    ),
    Task(
        name="streamed_text",
        title="Text as it streams",
        typos=_by_library(("model=", "modell="), ("debounce_by=", "debounce="), ("model=", "modell=")),
    ),
    Task(
        name="one_run_otherwise",
        title="Another model and instructions for one run",
        typos=_by_library(
            (" model=", " modl="),
            (" model=", " modl="),
            ('clone(model="small"', 'clone(modl="small"'),
        ),
    ),
    Task(
        name="some_tools_of_an_object",
        title="Some of an object's methods as tools",
        typos=_by_library((" tools=", " tool="), (" toolsets=", " toolset="), (" tools=[*", " tool=[*")),
    ),
    Task(
        name="approval",
        title="A call that a person approves later",
        typos=_by_library(
            ("unattended=", "unatended="),
            ("requires_approval=", "require_approval="),
            ("needs_approval=", "need_approval="),
        ),
    ),
    Task(
        name="foreign_history",
        title="A history from another SDK's dicts",
        typos=_by_library(
            (" history=history.m", " histroy=history.m"),
            ("message_history=", "mesage_history="),
            (" model=", " modl="),
        ),
    ),
    Task(
        name="budget",
        title="A budget over several runs",
        typos=_by_library((" limits=", " limit="), ("request_limit=", "requests_limit="), ("max_turns=", "max_turn=")),
    ),
    Task(
        name="cut_call",
        title="A call that the output limit cuts",
        typos=_by_library(
            ("max_output_tokens=", "max_output_token="),
            ('"max_tokens"', '"max_token"'),
            ("(max_tokens=", "(max_token="),
        ),
        variants={
            "cut three times": _by_library(*[("cut-call", "retry-after-split")] * 3),
            "cut three times, `retries=3`": _by_library(
                ("cut-call", "retry-after-split"),  # has no such option
                ('cut-call"', 'retry-after-split", retries=3'),
                ("cut-call", "retry-after-split"),  # has no such option
            ),
            "cut once, Chat Completions": _by_library(
                ("openai:", "openai-chat:"),
                ("openai-responses:", "openai-chat:"),
                (
                    "\nfrom agents import",
                    "\nimport agents\nagents.set_default_openai_api('chat_completions')\nfrom agents import",
                ),
            ),
        },
    ),
    Task(
        name="step_cap",
        title="A cap of steps",
        typos=_by_library(
            (" limits=", " limit="), ("request_limit=3", "requests_limit=3"), (" max_turns=3", " max_turn=3")
        ),
        variants={
            "nothing caught": _by_library(
                ("", ""),  # nothing is raised
                ("except UsageLimitExceeded:", "except ZeroDivisionError:"),
                (', error_handlers={"max_turns": answer_now}', ""),
            )
        },
    ),
)
