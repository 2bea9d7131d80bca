"""The figures that are expected, in a file that people read: by measure, and by what the figures depend on."""

import importlib.metadata
import platform
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from counting.hot_paths import HOT_PATHS, YARDSTICK
from counting.ways import MEASURES, Count

FILE = Path(__file__).with_name("expected.toml")
HEAD = """\
# What the hot paths cost, counted without a clock: `python benchmarks/counts.py` compares, `--update` writes this file.
# Figures are for one more unit (a chunk, a step, a call ...). `flatness` is a unit's cost at large sizes over small ones:
# it does not depend on the build of Python, so it is compared everywhere.
"""
LIBRARIES = ("msgspec", "pydantic", "pydantic-core")  # their work is counted as well
SAME_BUILD = 0.02  # of the yardstick: two runs of one build differ by less than a thousandth

Figures = dict[str, float]


class Expected:
    """`sections` are tables of figures by name: `instructions.KEY`, `calls.KEY`, `blocks.KEY`, `flatness.MEASURE`."""

    def __init__(self, sections: dict[str, Figures], *, versions: dict[str, dict[str, str]]) -> None:
        self.sections = sections
        self.versions = versions

    @classmethod
    def read(cls, file: Path) -> "Expected":
        if not file.exists():
            return cls({}, versions={})
        read = tomllib.loads(file.read_text())
        versions = read.pop("versions", {})
        return cls(
            {f"{outer}.{inner}": table for outer, tables in read.items() for inner, table in tables.items()},
            versions=versions,
        )

    def write(self, file: Path) -> None:
        order = {path.name: place for place, path in enumerate(HOT_PATHS)}
        lines = [HEAD]
        for name, versions in sorted(self.versions.items()):
            lines += [f"[versions.{name}]", *[f'{library} = "{version}"' for library, version in versions.items()], ""]
        for section, figures in sorted(self.sections.items(), key=_place):
            lines.append(f"[{section}]")
            digits = 2 if section.startswith("flatness") else 0 if section.startswith("instructions") else 1
            for name in sorted(figures.keys() & order, key=order.__getitem__):
                lines.append(f'"{name}" = {round(figures[name], digits) + 0.0:_.{digits}f}')  # no -0.0
            lines.append("")
        file.write_text("\n".join(lines))

    def figure(self, count: Count) -> float | None:
        return self.sections.get(f"{count.measure}.{key_of(count.measure)}", {}).get(count.path.name)

    def flatness(self, count: Count) -> float | None:
        return self.sections.get(f"flatness.{count.measure}", {}).get(count.path.name)

    def knows(self, measure: str) -> bool:
        return f"{measure}.{key_of(measure)}" in self.sections

    def other_build(self, counts: Sequence[Count]) -> bool:
        """Whether the figures of instructions come from another build of this version of Python."""
        for count in counts:
            if count.measure == "instructions" and count.path.name == YARDSTICK:
                figure = self.figure(count)
                return figure is not None and abs(count.per_unit / figure - 1) > SAME_BUILD
        return False

    def other_libraries(self) -> list[str]:
        then = self.versions.get(python_key(), {})
        return [
            f"{name} {version} (then {then[name]})"
            for name, version in versions_here().items()
            if name in then and then[name] != version
        ]

    def take(self, counts: Sequence[Count]) -> None:
        for count in counts:
            section = self.sections.setdefault(f"{count.measure}.{key_of(count.measure)}", {})
            section[count.path.name] = count.per_unit
            if count.flatness is not None:
                self.sections.setdefault(f"flatness.{count.measure}", {})[count.path.name] = count.flatness
        self.versions[python_key()] = versions_here()


def python_key() -> str:
    return sys.implementation.cache_tag or sys.implementation.name


def key_of(measure: str) -> str:
    """What figures of this measure depend on."""
    return f"{python_key()}-{platform.machine()}" if measure == "instructions" else python_key()


def versions_here() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in LIBRARIES}


def _place(section: tuple[str, Figures]) -> tuple[int, str]:
    measure = section[0].partition(".")[0]
    return (MEASURES.index(measure) if measure in MEASURES else -1, section[0])
