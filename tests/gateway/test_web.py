"""What of the page lies in the repository and the wheel: its size, where it loads from, and what its packages are pinned by."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
it: Any = type("Module", (), runpy.run_path(str(ROOT / "scripts" / "build_web.py")))
BUILT, WEB = it.BUILT, it.WEB
NAMES = {"icon.svg", "index.html", "licenses.txt", "page.css", "page.js"}


def test_the_page_is_small() -> None:
    assert {path.name for path in BUILT.iterdir()} == NAMES
    assert it.packed_bytes(BUILT) <= it.MOST_BYTES
    assert it.lines() <= it.MOST_LINES


def test_the_page_loads_nothing_from_elsewhere_and_runs_no_text() -> None:
    """Proves: no address of another host but the names of XML's spaces and licences, and nothing that its policy forbids."""
    for name in ("index.html", "page.css", "page.js"):
        text = (BUILT / name).read_text(encoding="utf-8")
        assert set(re.findall(r"https?://[\w.-]+", text)) <= {"http://www.w3.org"}, name
        assert not re.search(
            r"\beval\(|new Function|document\.write|insertAdjacentHTML|localStorage|sessionStorage", text
        )
    page = (BUILT / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<script(?! type=\"module\" src=)| style=| on\w+=", page)


def test_packages_are_pinned_by_hash_and_name_no_registry() -> None:
    told = json.loads((WEB / "package-lock.json").read_text(encoding="utf-8"))
    packages = {
        name: one for name, one in told["packages"].items() if name and not one.get("link") and "node_modules" in name
    }
    assert len(packages) > 8 and all(one["integrity"].startswith("sha512-") for one in packages.values())
    assert not any("//" in one.get("resolved", "") for one in packages.values())
    wanted = [
        json.loads(path.read_text(encoding="utf-8")) for path in (WEB / "package.json", *WEB.glob("*/package.json"))
    ]
    kinds = ("dependencies", "devDependencies", "optionalDependencies")
    versions = [version for one in wanted for kind in kinds for version in one.get(kind, {}).values()]
    assert all(version == "*" or re.fullmatch(r"\d+\.\d+\.\d+", version) for version in versions)
