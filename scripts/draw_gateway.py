"""Ask for every malformed case with every client, without a gateway, with LiteLLM's proxy and with turnwise's gateway, and draw
docs/gateway-cases.md.

Usage: python scripts/draw_gateway.py [--check] [--without-ai-sdk] [--without-litellm]     (a quarter of an hour)
`--check` writes nothing and exits with 1 on a difference. `benchmarks/setup` installs the AI SDK and LiteLLM's proxy; what is not
installed has to be left out by its option.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from gateway.ai_sdk import ai_sdk, missing  # noqa: E402  # pyright: ignore[reportMissingImports]
from gateway.judged import (  # noqa: E402  # pyright: ignore[reportMissingImports]
    CLIENTS,
    FAILING,
    FAMILIES,
    HEALTHY,
    HOPELESS,
    MALFORMED,
    MAY_FAIL,
    SCRIPTS,
    Cell,
    Judged,
    Stage,
    cells,
    judge,
    stage,
)
from gateway.litellm_proxy import LiteLlmProxy, litellm_proxy, missing_proxy  # noqa: E402  # pyright: ignore[reportMissingImports]
from gateway.official_clients import Place  # noqa: E402  # pyright: ignore[reportMissingImports]

PAGE = ROOT / "docs" / "gateway-cases.md"
PINNED = ROOT / "benchmarks"
INTRO = """# What clients make of broken streams, with and without the gateway
<!-- drawn by scripts/draw_gateway.py from a run; change the script, not this page -->

The lab plays each case. The official Python clients ask for it: openai (Chat Completions and Responses), anthropic, google-genai.
{sdk}
Each cell has {columns}:

- without a gateway: the client asks the lab itself, which then speaks the client's own family. Most streams are malformed only in
  Chat Completions, so the other clients have little to trip over here.
{litellm}- with turnwise: the upstream of turnwise's gateway speaks each of the four families in turn.

All of it is asked streamed and not, and the cell shows the worst answer. Each cell judges the answer to the
first request. The second one of a tool loop, with the results, is tried for `reasoning-and-calls` in all 16 pairs through
turnwise's gateway by the four Python clients (`tests/gateway/test_official_clients.py`), streamed and not: all are right.

`right`: the text, the calls and the finish reason that the case means. `wrong`: something else that looks like an answer.
`error`: one error of the client's own kind. `crash`: another exception. `right or one error`: it depends on how much had arrived
before the upstream failed. `-`: the lab does not have the case in this family.
"""
SDK = "So does the AI SDK from npm (`ai` {version}), with its provider for each family.\n"
NO_SDK = "The AI SDK was left out of this run.\n"
WITH_LITELLM = (
    "- with LiteLLM: LiteLLM's proxy {version} with the setting `openai/*`, so that it chooses between Chat Completions and\n"
    "  Responses upstream. It tries again as often as it does by default. google-genai is set to\n"
    "  `v1beta`, the version that it serves.\n"
)
LITELLM = "litellm"  # in place of an upstream's family
ORDER = ("crash", "wrong", "error", "right")
SDK_CLIENTS = {
    "openai_chat": "AI SDK, Chat",
    "openai_responses": "AI SDK, Responses",
    "anthropic_messages": "AI SDK, Anthropic",
    "gemini": "AI SDK, Google",
}
Ask = Callable[[Cell, str, str], Judged]  # the cell, an address, the model's name there


class Kit(NamedTuple):
    """Clients of one maker: their names by family, and how they ask."""

    names: Mapping[str, str]
    ask: Ask


class Field(NamedTuple):
    """All that a table is drawn with. Without a `litellm` its part is left out."""

    served: Stage
    litellm: LiteLlmProxy | None


def official(cell: Cell, at: str, model: str) -> Judged:
    # LiteLLM's proxy has no path with `v1` for Gemini's clients, so its users set the version.
    version = "v1beta" if cell.upstream == LITELLM else None
    return judge(cell, at=Place(at, google_version=version), model=model)


def worst(verdicts: Iterable[str], *, case: str) -> str:
    found = set(verdicts)
    if not found:
        return "-"
    if case in FAILING and case not in HOPELESS and found <= {"right", "error"}:
        return MAY_FAIL
    return min(found, key=ORDER.index)


def ways(case: str, client: str, *, field: Field) -> Iterator[list[tuple[Cell, str, str]]]:
    """For each part of a cell, what is asked where by which name."""
    both = [Cell(case, client, client, streamed) for streamed in (True, False)]
    yield [(cell, field.served.lab, case) for cell in both if SCRIPTS[case].speaks(client)]
    if field.litellm is not None:
        yield [(cell._replace(upstream=LITELLM), LITELLM, case) for cell in both]
    yield [(cell, field.served.gateway, cell.model) for cell in cells(case) if cell.client == client]


def row(case: str, *, kit: Kit, field: Field) -> str:
    wanted = None if case in HOPELESS else field.served.wanted(case)
    found: list[str] = []
    for client in FAMILIES:
        parts: list[str] = []
        for way in ways(case, client, field=field):
            verdicts: list[str] = []
            for cell, at, model in way:
                if field.litellm is not None and cell.upstream == LITELLM:
                    before, at = field.litellm.starts, field.litellm.url()
                    if before and field.litellm.starts > before:
                        print(
                            f"LiteLLM's proxy had ended or hung before `{case}`, and was started again", file=sys.stderr
                        )
                field.served.forget()
                verdicts.append(kit.ask(cell, at, model).verdict(wanted))
            parts.append(worst(verdicts, case=case))
        found.append(" / ".join(parts))
    return f"| `{case}` | {' | '.join(found)} |\n"


def tables(cases: Iterable[str], *, kits: Iterable[Kit], field: Field) -> str:
    head = "without / with LiteLLM / with turnwise" if field.litellm is not None else "without / with turnwise"
    chosen, out = list(cases), list[str]()
    for kit in kits:
        names = " | ".join([kit.names[client] for client in FAMILIES])
        out.append(f"| {head} | {names} |\n|{'---|' * (len(FAMILIES) + 1)}\n")
        for case in chosen:
            out.append(row(case, kit=kit, field=field))
            print(out[-1], end="", flush=True)
        out.append("\n")
    return "".join(out)


def drawn(*, with_sdk: bool, with_litellm: bool) -> str:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="turnwise-gateway-")))
        served = stack.enter_context(stage(folder))
        litellm = stack.enter_context(litellm_proxy(folder, lab=served.lab)) if with_litellm else None
        kits = [Kit(CLIENTS, official)]
        if with_sdk:
            sdk = stack.enter_context(ai_sdk())
            kits.append(Kit(SDK_CLIENTS, lambda cell, at, model: sdk.judge(cell, at=at, model=model)))
        field = Field(served, litellm)
        malformed = tables(MALFORMED, kits=kits, field=field)
        failing = tables(FAILING, kits=kits, field=field)
        healthy = tables(HEALTHY, kits=kits, field=field)
    pins = json.loads((PINNED / "node" / "package.json").read_text(encoding="utf-8"))["dependencies"]
    told = (PINNED / "pyproject.toml").read_text(encoding="utf-8")
    version = told.partition("litellm[proxy]==")[2].partition('"')[0]
    intro = INTRO.format(
        sdk=SDK.format(version=pins["ai"]) if with_sdk else NO_SDK,
        columns="three parts" if with_litellm else "two parts; LiteLLM's proxy was left out of this run",
        litellm=WITH_LITELLM.format(version=version) if with_litellm else "",
    )
    reasons = "".join([f"| `{case}` | {why} |\n" for case, why in HOPELESS.items()])
    return "".join(
        [
            f"{intro}\n## Malformed streams\nEach of them holds a whole answer.\n\n{malformed}",
            f"## Upstreams that fail\n{failing}",
            f"## Healthy streams\n{healthy}",
            "## Where nothing right can be had\nThrough turnwise's gateway these end with one error of the client's own kind.\n",
            "\n",
            f"| case | why |\n|---|---|\n{reasons}",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the kept page")
    parser.add_argument("--without-ai-sdk", action="store_true", help="draw without the AI SDK")
    parser.add_argument("--without-litellm", action="store_true", help="draw without LiteLLM's proxy")
    given = parser.parse_args()
    for is_left_out, why, option in (
        (given.without_ai_sdk, missing(), "--without-ai-sdk"),
        (given.without_litellm, missing_proxy(), "--without-litellm"),
    ):
        if why and not is_left_out:
            print(f"{why}: run `benchmarks/setup`, or leave it out with {option}", file=sys.stderr)
            return 2
    page = drawn(with_sdk=not given.without_ai_sdk, with_litellm=not given.without_litellm)
    if not given.check:
        PAGE.write_text(page, encoding="utf-8")
        print(PAGE.relative_to(ROOT))
        return 0
    same = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page
    print("the table is as it was kept" if same else f"{PAGE.relative_to(ROOT)} differs: draw it anew and look")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
