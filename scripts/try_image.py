"""Carry out deploy/Dockerfile without Docker: its steps in clean Debian roots, and its program with a read-only root.

Usage: python scripts/try_image.py [--keep FOLDER]        as root; needs debootstrap and bubblewrap; some minutes

The program runs as the image says (user, variables, command). It has to answer /readyz, refuse a request without a key, take one
with a key, and write nowhere but in its volume.
"""

import argparse
import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SUITE = "bookworm"
WAIT_S = 60.0
# How the machine reaches its package index goes into the roots for the time of the steps.
PIP = [Path("/etc/pip.conf"), Path.home() / ".config" / "pip" / "pip.conf", Path.home() / ".pip" / "pip.conf"]
CERTIFICATES, OURS = "/etc/ssl/certs/ca-certificates.crt", "/etc/certificates-of-the-host.crt"
CONFIG = 'host = "127.0.0.1"\nport = 8484\n[[route]]\nupstream = "http://127.0.0.1:9/v1"\n'


class Step(NamedTuple):
    name: str
    text: str


def steps_of(text: str) -> Iterator[Step]:
    """The instructions of a Dockerfile, their lines joined."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    for line in joined.splitlines():
        name, _, rest = line.strip().partition(" ")
        yield Step(name.upper(), " ".join(rest.split()) if name.upper() != "RUN" else rest.strip())


class Image:
    """One stage: its root, and what the image says of its program."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder, self.user = root, "/", "0:0"
        self.env: dict[str, str] = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        self.volume, self.entry, self.command = "", list[str](), list[str]()

    def do(self, step: Step, *, stages: dict[str, "Image"]) -> None:
        match step.name:
            case "RUN":
                words = ["chroot", str(self.root), "/bin/sh", "-ec", f"cd {shlex.quote(self.folder)} && {step.text}"]
                pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
                env = {**self.env, **pip, "PIP_CERT": OURS, "DEBIAN_FRONTEND": "noninteractive", "HOME": "/root"}
                subprocess.run(words, check=True, env=env, stdout=subprocess.DEVNULL)
            case "COPY":
                self._copy(shlex.split(step.text), stages=stages)
            case "ENV":
                self.env |= dict([word.split("=", 1) for word in shlex.split(step.text)])
            case "WORKDIR":
                self.folder = step.text
                (self.root / step.text.lstrip("/")).mkdir(parents=True, exist_ok=True)
            case "USER":
                self.user = step.text
            case "VOLUME":
                self.volume = step.text
            case "ENTRYPOINT":
                self.entry = json.loads(step.text)
            case "CMD":
                self.command = json.loads(step.text)
            case "EXPOSE" | "HEALTHCHECK":
                pass
            case _:
                raise SystemExit(f"try_image: no rule for {step.name}")

    def _copy(self, words: list[str], *, stages: dict[str, "Image"]) -> None:
        source = ROOT
        if words[0].startswith("--from="):
            source = stages[words.pop(0).partition("=")[2]].root
        *names, last = words
        target = self.root / (last if last.startswith("/") else f"{self.folder}/{last}").lstrip("/")
        for name in names:
            one = source / name.lstrip("/")
            if one.is_dir():
                shutil.copytree(
                    one, target, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
                )
            else:
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy2(one, target)


def built(text: str, *, folder: Path) -> Image:
    """Each stage begins as a clean Debian."""
    clean = folder / "clean"
    print(f"a clean Debian ({SUITE})", flush=True)
    subprocess.run(["debootstrap", "--variant=minbase", SUITE, str(clean)], check=True, stdout=subprocess.DEVNULL)
    for path in PIP:
        if path.exists():
            shutil.copy2(path, clean / "etc" / "pip.conf")
    links = Path(os.environ.get("PIP_FIND_LINKS", "/nowhere"))
    if links.is_dir():
        shutil.copytree(links, clean / str(links).lstrip("/"))
    shutil.copy2(CERTIFICATES, clean / OURS.lstrip("/"))
    stages: dict[str, Image] = {}
    image: Image | None = None
    for step in steps_of(text):
        if step.name == "FROM":
            image = Image(folder / f"stage-{len(stages)}")
            subprocess.run(["cp", "-ax", str(clean), str(image.root)], check=True)
            stages[step.text.rpartition(" ")[2]] = image
            continue
        print(f"{step.name} {step.text[:100]}", flush=True)
        assert image is not None, "it begins with FROM"
        image.do(step, stages=stages)
    assert image is not None
    return image


def in_box(image: Image, words: list[str], *, state: Path, config: Path) -> list[str]:
    """As a container with a read-only root runs it."""
    uid, _, gid = image.user.partition(":")
    box = ["bwrap", "--unshare-user", "--unshare-pid", "--die-with-parent", "--uid", uid, "--gid", gid]
    box += ["--ro-bind", str(image.root), "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    box += ["--bind", str(state), image.volume, "--ro-bind", str(config), "/etc/turnwise", "--chdir", image.folder]
    box += ["--clearenv", *[word for name, value in image.env.items() for word in ("--setenv", name, value)]]
    return [*box, *words]


def tried(image: Image, *, folder: Path) -> list[str]:
    """What does not hold."""
    state, config = folder / "state", folder / "config"
    for one in (state, config, image.root / "etc" / "turnwise"):  # as Docker makes the places of its mounts
        one.mkdir(exist_ok=True)
    (config / "gateway.toml").write_text(CONFIG)
    turnwise = image.entry[0]
    added = subprocess.run(
        in_box(image, [turnwise, "gateway", "keys", "add", "trial"], state=state, config=config),
        check=True,
        capture_output=True,
        text=True,
    )
    key = next(word for word in added.stdout.split() if word.startswith("tw-"))
    problems: list[str] = []
    with subprocess.Popen(in_box(image, [*image.entry, *image.command], state=state, config=config)) as process:
        try:
            until = time.monotonic() + WAIT_S
            while status_of("/readyz") != 200:
                if process.poll() is not None or time.monotonic() > until:
                    return ["it does not get ready"]
                time.sleep(0.2)
            for what, found, wanted in [
                ("without a key", status_of("/v1/models"), 401),
                ("with a key", status_of("/v1/models", key=key), 200),
            ]:
                if found != wanted:
                    problems.append(f"{what}: {found}, not {wanted}")
        finally:
            os.kill(innermost(process.pid), signal.SIGTERM)
            process.wait(WAIT_S)
    if process.returncode:
        problems.append(f"it ended with {process.returncode}")
    return problems


def innermost(pid: int) -> int:
    """The program itself: bubblewrap stands around it."""
    while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        pid = int(children[0])
    return pid


def status_of(path: str, *, key: str = "") -> int:
    request = urllib.request.Request(f"http://127.0.0.1:8484{path}")
    if key:
        request.add_header("authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="build there, and leave it")
    options = parser.parse_args()
    lacking = [name for name in ("debootstrap", "bwrap", "chroot") if shutil.which(name) is None]
    if lacking or os.geteuid() != 0:
        print(f"try_image: needs root and {', '.join(lacking) or 'nothing else'}", file=sys.stderr)
        return 2
    with contextlib.ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(exist_ok=True)
        problems = tried(built((ROOT / "deploy" / "Dockerfile").read_text(), folder=folder), folder=folder)
    print("\n".join(problems) or "the image's program answers, and asks for a key")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
