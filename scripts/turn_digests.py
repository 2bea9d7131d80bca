"""Compare the turn's machine with the digests that are kept of its commands, or make these anew.

Usage: python scripts/turn_digests.py --check | --write [--part PART] [--against REV] [--processes N]

The events of some thousand sessions lie in tests/turn/kept, with a digest for each command that the machine gave. `--check` gives
the events to the machine of today. It exits with 1 where a digest differs and tests/turn/kept/allowed.toml does not list it, and
says which session, which event and what the new command is; with `--against REV` also what the machine of that revision says.
`--write` makes events and digests anew with the machine of today: the same bytes each time. It takes what the list says of these
parts out of it. Recordings are left out where their
folder is missing (TURNWISE_CORPUS, else ../shared/corpus): nothing but digests is kept of them.
"""

import argparse
import difflib
import gc
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from turn.kept_corpus import played, recorded_in, stood_in  # noqa: E402
from turn.kept_parts import (  # noqa: E402
    ALLOWED,
    RECORDINGS,
    STAND_INS,
    Compared,
    Difference,
    allowed_differences,
    compare,
    file_of,
    judge,
    outputs_of_session,
    part_names,
    part_of,
    without_parts,
    write,
)
from turn.kept_sessions import FOLDER, Output, outputs_of, read_part  # noqa: E402

SHOWN = 5  # differences whose commands are shown; of the others the names
CONTEXT = 3
LONGEST = 6_000  # characters of a shown command
OTHERS = 40


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the turn's machine with the kept digests of its commands.")
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--check", action="store_true", help="compare; exits with 1 where something differs")
    way.add_argument("--write", action="store_true", help="make events and digests anew")
    way.add_argument("--show", nargs=2, metavar=("SESSION", "PLACE"), help="print what the machine says at one place")
    parser.add_argument("--part", action="append", choices=part_names(), help="this part alone (may be repeated)")
    parser.add_argument(
        "--against", metavar="REV", help="where it differs, show what the machine of this revision says"
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the parts lie, if not in tests/turn/kept")
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    given = parser.parse_args()
    corpus = corpus_folder()
    if given.show:
        print(shown(given.show[0], place=int(given.show[1]), corpus=corpus))
        return 0
    parts = given.part or part_names()
    if not corpus.is_dir() and RECORDINGS in parts:
        print(f"no folder of recordings at {corpus}: `{RECORDINGS}` is left out (set TURNWISE_CORPUS)")
        parts = [part for part in parts if part != RECORDINGS]
    if given.write:
        return write_all(parts, corpus=corpus, given=given)
    return check(parts, corpus=corpus, given=given)


def write_all(parts: list[str], *, corpus: Path, given: argparse.Namespace) -> int:
    with ProcessPoolExecutor(given.processes) as pool:
        for file in pool.map(partial(write, corpus=corpus, folder=given.folder), parts):
            print(f"{file.name}: {file.stat().st_size:,} bytes", flush=True)
    if given.folder == FOLDER:
        listed = ALLOWED.read_text(encoding="utf-8")
        ALLOWED.write_text(without_parts(listed, parts=parts), encoding="utf-8")
    return 0


def check(parts: list[str], *, corpus: Path, given: argparse.Namespace) -> int:
    began = time.monotonic()
    gc.disable()  # a short process, and hardly anything of it is garbage in circles
    with ProcessPoolExecutor(given.processes) as pool:
        compared: list[Compared] = list(pool.map(partial(compare, corpus=corpus, folder=given.folder), parts))
    differences = [one for each in compared for one in each.differences]
    wrong, stale = judge(differences, allowed=allowed_differences(), is_of_part=lambda key: part_of(key) in parts)
    for one in wrong[:SHOWN]:
        print_difference(one, corpus=corpus, against=given.against)
    for one in wrong[SHOWN : SHOWN + OTHERS]:
        print(f"DIFFERS {one.key}")
    for key in stale:
        print(f"NO DIFFERENCE any more, though tests/turn/kept/allowed.toml lists it: {key}")
    sessions, outputs = sum([one.sessions for one in compared]), sum([one.outputs for one in compared])
    print(
        f"{sessions:,} sessions, {outputs:,} outputs of the machine compared in {time.monotonic() - began:.0f} s: "
        f"{len(wrong)} sessions differ, {len(differences) - len(wrong)} differ as listed, {len(stale)} of the list do not"
    )
    return 1 if wrong or stale else 0


def print_difference(one: Difference, *, corpus: Path, against: str | None) -> None:
    about = f" ({one.about})" if one.about else ""
    print(f"\nDIFFERS {one.key}{about}")
    new = pretty(one.form)
    if against is None:
        print(f"now (with `--against REV` the command of that revision stands beside it):\n{cut(new)}\n")
        return
    old = old_form(one, against=against)
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), against, "now", lineterm="", n=CONTEXT)
    print(cut("\n".join(lines)) or f"`{against}` says the same: the kept digest is of another machine\n{cut(new)}")
    print()


def cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}\n... {len(text) - LONGEST:,} more characters"


def pretty(form: bytes) -> str:
    return json.dumps(json.loads(form), indent=1, ensure_ascii=False)


def old_form(one: Difference, *, against: str) -> str:
    """What the machine of the revision says at the same place: as its own script says it, of the kept events of today."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "-C", str(ROOT), "archive", against, "src", "tests", "scripts"], check=True, stdout=subprocess.PIPE
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        kept = Path(folder, FOLDER.relative_to(ROOT))
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(FOLDER, kept)
        found = subprocess.run(
            [sys.executable, str(Path(folder, "scripts", Path(__file__).name)), "--show", one.session, str(one.place)],
            env={**os.environ, "PYTHONPATH": str(Path(folder) / "src"), "TURNWISE_CORPUS": str(corpus_folder())},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    return found.stdout.rstrip("\n") if found.returncode == 0 else f"(`{against}` cannot say it)"


def corpus_folder() -> Path:
    return Path(os.environ.get("TURNWISE_CORPUS") or ROOT.parent / "shared" / "corpus")


def shown(name: str, *, place: int, corpus: Path) -> str:
    output = next(islice(outputs_by_name(name, corpus=corpus), place, None), None)
    return pretty(output.form if output is not None else b"null")


def outputs_by_name(name: str, *, corpus: Path) -> "islice[Output]":
    if part_of(name) in (RECORDINGS, STAND_INS):
        recorded = recorded_in(corpus) if part_of(name) == RECORDINGS else stood_in()
        found = next(one for one in recorded if one.name == name)
        return islice(outputs_of(played(found)), None)
    session = next(one for one in read_part(file_of(part_of(name))) if one.name == name)
    return islice(outputs_of_session(session), None)


if __name__ == "__main__":
    sys.exit(main())
