"""Ask for every malformed case with every official client, with and without the gateway, and draw docs/gateway-cases.md.

Usage: python scripts/draw_gateway.py [--check]     (some minutes; `--check` writes nothing and exits with 1 on a difference)
"""

import argparse
import importlib.util
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from faces.gateway.judged import (  # noqa: E402  # pyright: ignore[reportMissingImports]
    CLIENTS,
    FAILING,
    FAMILIES,
    HEALTHY,
    HOPELESS,
    MALFORMED,
    MAY_FAIL,
    SCRIPTS,
    Cell,
    Stage,
    cells,
    stage,
)

PAGE = ROOT / "docs" / "gateway-cases.md"
INTRO = """# What clients make of broken streams, with and without the gateway
<!-- drawn by scripts/draw_gateway.py from a run; change the script, not this page -->

The lab plays each case. The official Python clients ask for it: openai (Chat Completions and Responses), anthropic, google-genai.

- With the gateway: the upstream speaks each of the four families in turn, streamed and not. The cell is the worst of these.
- Without it: the client asks the lab itself, which then speaks the client's own family. Most streams are malformed only in Chat
  Completions, so the other clients have little to trip over here.

`right`: the text, the calls and the finish reason that the case means. `wrong`: something else that looks like an answer.
`error`: one error of the client's own kind. `crash`: another exception. `right or one error`: it depends on how much had arrived
before the upstream failed. `-`: the lab does not have the case in this family.
"""
NO_LITELLM = "LiteLLM's proxy was not installed for this run, so the table has no column for it.\n"
LITELLM = "LiteLLM's proxy is installed, but this script cannot start it yet, so the table has no column for it.\n"
ORDER = ("crash", "wrong", "error", "right")


def worst(verdicts: Iterable[str], *, case: str) -> str:
    found = set(verdicts)
    if not found:
        return "-"
    if case in FAILING and case not in HOPELESS and found <= {"right", "error"}:
        return MAY_FAIL
    return min(found, key=ORDER.index)


def row(case: str, *, served: Stage) -> str:
    wanted = None if case in HOPELESS else served.wanted(case)
    with_gateway: dict[str, list[str]] = {client: [] for client in FAMILIES}
    without: dict[str, list[str]] = {client: [] for client in FAMILIES}
    for cell in cells(case):
        if case in FAILING:
            served.forget()
        with_gateway[cell.client].append(served.through(cell).verdict(wanted))
    for client in FAMILIES:
        if SCRIPTS[case].speaks(client):
            for streamed in (True, False):
                served.forget()
                cell = Cell(case, client, client, streamed)
                without[client].append(served.without(cell).verdict(wanted))
    pairs = [f"{worst(with_gateway[client], case=case)} / {worst(without[client], case=case)}" for client in FAMILIES]
    return f"| `{case}` | {' | '.join(pairs)} |\n"


def drawn() -> str:
    with tempfile.TemporaryDirectory(prefix="turnwise-gateway-") as folder, stage(Path(folder)) as served:
        rows = {}
        for case in (*MALFORMED, *FAILING, *HEALTHY):
            rows[case] = row(case, served=served)
            print(rows[case], end="", flush=True)
    head = (
        f"| with / without | {' | '.join(CLIENTS[client] for client in FAMILIES)} |\n|{'---|' * (len(FAMILIES) + 1)}\n"
    )
    reasons = "".join([f"| `{case}` | {why} |\n" for case, why in HOPELESS.items()])
    return "".join(
        [
            INTRO,
            "\n",
            NO_LITELLM if importlib.util.find_spec("litellm") is None else LITELLM,
            "\n## Malformed streams\nEach of them holds a whole answer.\n\n",
            head,
            *[rows[case] for case in MALFORMED],
            "\n## Upstreams that fail\n",
            head,
            *[rows[case] for case in FAILING],
            "\n## Healthy streams\n",
            head,
            *[rows[case] for case in HEALTHY],
            "\n## Where nothing right can be had\nThese end with one error of the client's own kind.\n\n",
            "| case | why |\n|---|---|\n",
            reasons,
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the kept page")
    is_check = parser.parse_args().check
    page = drawn()
    if not is_check:
        PAGE.write_text(page, encoding="utf-8")
        print(PAGE.relative_to(ROOT))
        return 0
    same = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page
    print("the table is as it was kept" if same else f"{PAGE.relative_to(ROOT)} differs: draw it anew and look")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
