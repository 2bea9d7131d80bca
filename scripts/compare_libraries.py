"""Run the ten tasks of examples/comparison with three libraries against the lab, and keep what was seen.

Usage: python scripts/compare_libraries.py [--peers PYTHON] [--only LIBRARY] [--check | --page]

Writes examples/comparison/results.json, and docs/comparison.md from it. `--check` writes nothing and exits with 1 if something is
otherwise than kept. `--only turnwise` needs no peers, and leaves what is kept of them. `--page` draws the page from what is kept,
without running anything. `--peers` is a Python that has pydantic-ai and openai-agents; `benchmarks/setup` installs both.
"""

import argparse
import ast
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from comparison_page import draw_page
from comparison_tasks import LIBRARIES, TASKS, Comparison, Library, ProgramFacts, RunFacts, Task, TypoFacts

from turnwise.lab import Lab

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "examples" / "comparison"
RESULTS = FOLDER / "results.json"
PAGE = ROOT / "docs" / "comparison.md"
PEERS = ROOT / "benchmarks" / ".venv" / "peers" / "bin" / "python"
PYRIGHT = Path(sys.executable).with_name("pyright")
RUN_S = 60.0
TYPES_S = 240.0
AT_ONCE = 2
RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?:: (.*))?$")
SHOWN = 200  # characters of an exception's message
NAMED = re.compile(r'(Model\()?"(openai|openai-chat):([\w-]+)"')  # a model in a program for turnwise
FAMILIES = {"openai": "openai_responses", "openai-chat": "openai_chat"}


def source_of(task: Task, library: Library) -> str:
    return (FOLDER / task.name / f"with_{library.name}.py").read_text(encoding="utf-8")


def way_of(source: str) -> str:
    """What a program's docstring says of how it does its task."""
    return (ast.get_docstring(ast.parse(source)) or "").replace("\n", " ")


def count_lines(source: str) -> int:
    """Lines that are no blanks, no comments and no docstrings; an import counts one however it is wrapped."""
    tree = ast.parse(source)
    left_out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            left_out |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        if isinstance(node, ast.Import | ast.ImportFrom):
            left_out |= set(range(node.lineno + 1, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(source.splitlines(), start=1)
    return sum(1 for number, line in lines if line.strip() and line.strip()[0] != "#" and number not in left_out)


def revealing(source: str) -> str:
    """The same program with `reveal_type` around what its last `print` shows of the run."""
    shown = [
        node.args[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print" and node.args
    ]
    last = max((one for one in shown if not isinstance(one, ast.Constant | ast.JoinedStr)), key=lambda one: one.lineno)
    lines = source.splitlines(keepends=True)
    line = lines[last.lineno - 1]
    end = last.end_col_offset or len(line)
    lines[last.lineno - 1] = f"{line[: last.col_offset]}reveal_type({line[last.col_offset : end]}){line[end:]}"
    return "".join(lines)


def replaced(source: str, change: tuple[str, str]) -> str:
    old, new = change
    if old and source.count(old) != 1:
        raise SystemExit(f"`{old}` has to stand once in the program\n{source}")
    return source.replace(old, new) if old else source


def at_the_lab(source: str, *, base_url: str) -> str:
    """The same program with the lab's URL in each of turnwise's models; the other libraries read it from the environment."""

    def placed(found: re.Match[str]) -> str:
        given = f'"{FAMILIES[found[2]]}:{found[3]}", base_url="{base_url}"'
        return f"Model({given}" if found[1] else f'__import__("turnwise").Model({given})'

    return NAMED.sub(placed, source)


async def run_program(source: str, *, python: Path) -> RunFacts:
    """What a program prints, raises and sends, against a lab of its own."""
    async with Lab(FOLDER / "scripts") as lab:
        env = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
        env |= {"OPENAI_BASE_URL": f"{lab.url}/v1", "OPENAI_API_KEY": "none", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
        with tempfile.TemporaryDirectory() as name:
            program = Path(name) / "task" / "program.py"
            program.parent.mkdir()
            of_turnwise = re.search(r"^from turnwise import", source, re.MULTILINE)
            written = at_the_lab(source, base_url=f"{lab.url}/v1") if of_turnwise else source
            program.write_text(written, encoding="utf-8")
            shutil.copy(FOLDER / "chat.json", name)
            process = await asyncio.create_subprocess_exec(
                python,
                str(program),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=env,
                cwd=name,
            )
            try:
                async with asyncio.timeout(RUN_S):
                    out, errors = await process.communicate()
            except TimeoutError:
                process.kill()
                await process.wait()
                raise SystemExit(f"a program took longer than {RUN_S:.0f} s:\n{source}") from None
        raised, message = raised_in(errors.decode()) if process.returncode else ("", "")
        return RunFacts(
            printed=out.decode().strip(),
            raised=raised,
            message=message,
            requests=len(lab.requests),
            refused=sum(1 for one in lab.requests if one.status != 200),
        )


def raised_in(errors: str) -> tuple[str, str]:
    """The exception that ended a program, by its last traceback: its class without the module, and its message's first line."""
    for line in reversed(errors.splitlines()):
        found = RAISED.match(line)
        if found and found[1].rpartition(".")[2][:1].isupper():
            return found[1].rpartition(".")[2], shortened(found[2] or "")
    raise SystemExit(f"no exception in:\n{errors}")


def shortened(message: str) -> str:
    return message if len(message) <= SHOWN else message[:SHOWN].rsplit(" ", 1)[0] + " …"


def check_types(sources: dict[str, str], *, python: Path) -> dict[str, tuple[int, str]]:
    """Errors of pyright strict in each program, and the type that it reveals."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        for stem, source in sources.items():
            (folder / f"{stem}.py").write_text(source, encoding="utf-8")
        (folder / "pyrightconfig.json").write_text(json.dumps({"include": ["."], "strict": ["."]}))
        argv = [str(PYRIGHT), "--outputjson", "--pythonpath", str(python), "-p", str(folder)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=TYPES_S, check=False)
        found = json.loads(done.stdout)["generalDiagnostics"]
    errors = dict.fromkeys(sources, 0)
    types = dict.fromkeys(sources, "")
    for one in found:
        stem = Path(one["file"]).stem
        if one["severity"] == "error":
            errors[stem] += 1
        elif revealed := re.fullmatch(r'Type of ".*" is "(.*)"', one["message"], re.DOTALL):
            types[stem] = revealed[1]
    return {stem: (errors[stem], types[stem]) for stem in sources}


async def facts_of(library: Library, *, python: Path) -> dict[str, ProgramFacts]:
    """All tasks of one library."""
    sources = {task.name: source_of(task, library) for task in TASKS}
    wrong = {task.name: replaced(sources[task.name], task.typos[library.name]) for task in TASKS}
    checked = {name: revealing(source) for name, source in sources.items()}
    checked |= {f"typo_{name}": source for name, source in wrong.items()}
    types = await asyncio.to_thread(check_types, checked, python=python)
    room = asyncio.Semaphore(AT_ONCE)

    async def run(source: str) -> RunFacts:
        async with room:
            return await run_program(source, python=python)

    async def facts(task: Task) -> ProgramFacts:
        source = sources[task.name]
        variants = {title: replaced(source, change[library.name]) for title, change in task.variants.items()}
        ran, misspelt, *others = await asyncio.gather(run(source), run(wrong[task.name]), *map(run, variants.values()))
        errors, revealed = types[task.name]
        right, typo = task.typos[library.name]
        return ProgramFacts(
            way=way_of(source),
            lines=count_lines(source),
            type=revealed,
            type_errors=errors,
            ran=ran,
            typo=TypoFacts(right=right, wrong=typo, type_errors=types[f"typo_{task.name}"][0] - errors, ran=misspelt),
            variants=dict(zip(variants, others, strict=True)),
        )

    return {task.name: await facts(task) for task in TASKS}


def version_of(library: Library, *, python: Path) -> str:
    code = f"import importlib.metadata as it; print(it.version({library.distribution!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


async def compare(peers: Path, only: Sequence[str] = ()) -> Comparison:
    pythons = {library.name: Path(sys.executable) if library.name == "turnwise" else peers for library in LIBRARIES}
    chosen = [library for library in LIBRARIES if not only or library.name in only]
    return Comparison(
        versions={one.name: version_of(one, python=pythons[one.name]) for one in chosen},
        facts={one.name: await facts_of(one, python=pythons[one.name]) for one in chosen},
    )


def kept_results() -> Comparison:
    return msgspec.json.decode(RESULTS.read_bytes(), type=Comparison)


def differences(kept: Comparison, seen: Comparison) -> Iterator[str]:
    """What was seen otherwise than it is kept, of the libraries that were looked at."""
    for library, facts in seen.facts.items():
        if kept.versions.get(library) != seen.versions[library]:
            yield f"{library}: version {seen.versions[library]}, kept is {kept.versions.get(library)}"
        for task, now in facts.items():
            before = kept.facts.get(library, {}).get(task)
            if before != now:
                yield f"{library}, {task}:\n  kept {before}\n  seen {now}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, default=PEERS, metavar="PYTHON", help="a Python that has the other two")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=[one.name for one in LIBRARIES],
        help="leave what is kept of the others",
    )
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--check", action="store_true", help="write nothing; exit with 1 if something is otherwise")
    choice.add_argument("--page", action="store_true", help="draw the page from what is kept")
    given = parser.parse_args()
    if given.page:
        PAGE.write_text(draw_page(kept_results()), encoding="utf-8")
        return 0
    if set(given.only) != {"turnwise"} and not given.peers.exists():
        parser.error(f"{given.peers} is not there: run benchmarks/setup, or name a Python with --peers")
    seen = asyncio.run(compare(given.peers, given.only))
    if given.check:
        found = list(differences(kept_results(), seen))
        print("\n".join(found) or "everything is as kept")
        return 1 if found else 0
    if given.only:
        kept = kept_results()
        seen = Comparison(versions=kept.versions | seen.versions, facts=kept.facts | seen.facts)
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(seen), indent=1) + b"\n")
    PAGE.write_text(draw_page(seen), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
