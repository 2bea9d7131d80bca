"""A table that one test goes through: every case runs, and the failure names each case that does not hold.

`pytest.mark.parametrize` makes a test of each case, and pytest collects, sets up and reports these one by one. In most tables
that takes longer than the cases themselves. `each` is written alike and makes one test of the whole table. Use `parametrize` if a
case starts a server or a process, draws examples, or needs its own instance of a fixture.

How many cells of several tables run, `meeting` and the profile say (thoroughness.py).
"""

import asyncio
import functools
import inspect
import reprlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from thoroughness import Meeting, cells

Ids = Iterable[object] | Callable[[Any], object] | None
NAME_CHARS = 100  # of a value in the name of its case


class Row(NamedTuple):
    """One line of a table: what the test is given, and how a failure calls it. The name is made only for a failure."""

    given: dict[str, Any]
    name: Callable[[], str]


class Table(NamedTuple):
    names: tuple[str, ...]
    rows: tuple[Row, ...]
    meeting: Meeting | None


def each(
    names: str | Sequence[str], values: Iterable[Any], *, ids: Ids = None, meeting: Meeting | None = None
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Make one test that runs for all values, written as for `pytest.mark.parametrize`; several tables are multiplied.

    `meeting`: which of these cells run outside of the profile `all`; any of the tables says it. Without it all cells of one or
    two tables run, and of more those in which any two values meet.

    Each case has an own folder in `tmp_path`, an own `monkeypatch` and, if the test is `async`, an own event loop. All other
    fixtures are shared by the cases. Skipped cases are named once the others hold.
    """
    table = _table(names, values=tuple(values), ids=ids, meeting=meeting)

    def decorate(test: Callable[..., Any]) -> Callable[..., None]:
        one_case: Callable[..., Any] = getattr(test, "one_case", test)
        tables: tuple[Table, ...] = (*getattr(test, "tables", ()), table)

        @functools.wraps(test)
        def every_case(**fixtures: Any) -> None:
            __tracebackhide__ = True
            all_hold(_cases(tables, name=test.__qualname__), hold=functools.partial(_run, one_case, fixtures))

        every_case.tables, every_case.one_case = tables, one_case  # type: ignore[attr-defined]
        signature = inspect.signature(test)
        left = [one for name, one in signature.parameters.items() if name not in table.names]
        assert len(left) == len(signature.parameters) - len(table.names), f"{test.__name__} does not take {names}"
        left = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in left]
        every_case.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return every_case

    return decorate


def all_hold(cases: Iterable[Row], *, hold: Callable[[int, dict[str, Any]], None]) -> None:
    """Call `hold` with the number and the values of every case; fail with the name and the error of each one that raised."""
    __tracebackhide__ = True
    failed: dict[str, str] = {}
    skipped: dict[str, str] = {}
    number = 0
    for number, case in enumerate(cases, start=1):
        try:
            hold(number, case.given)
        except pytest.skip.Exception as reason:
            skipped[f"{number}: {case.name()}"] = str(reason)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  # whatever it is, the other cases run, too
            failed[f"{number}: {case.name()}"] = str(pytest.ExceptionInfo.from_exception(error).getrepr(style="short"))
    assert number, "the table has no case"
    if failed:
        whole = "".join(f"\n\n[{name}]\n{error}" for name, error in failed.items())
        pytest.fail(f"{len(failed)} of {number} cases do not hold: {', '.join(failed)}{whole}", pytrace=False)
    if skipped:
        named = "; ".join(f"[{name}] {reason}" for name, reason in skipped.items())
        pytest.skip(f"{len(skipped)} of {number} cases, the others hold: {named}")


def _run(test: Callable[..., Any], fixtures: dict[str, Any], number: int, given: dict[str, Any]) -> None:
    __tracebackhide__ = True
    own = dict(fixtures)
    if "tmp_path" in own:
        folder: Path = own["tmp_path"] / f"case{number}"
        folder.mkdir()
        own["tmp_path"] = folder
    with pytest.MonkeyPatch.context() as patch:
        if "monkeypatch" in own:
            own["monkeypatch"] = patch
        result = test(**own, **given)
        if inspect.iscoroutine(result):
            asyncio.run(result)


def _cases(tables: tuple[Table, ...], *, name: str) -> Iterator[Row]:
    usual: Meeting = "all" if len(tables) < 3 else "pairs"
    meeting = next((table.meeting for table in tables if table.meeting is not None), usual)
    for places in cells([len(table.rows) for table in tables], meeting=meeting, name=name):
        rows = tuple([table.rows[at] for table, at in zip(tables, places, strict=True)])
        given = {name: value for row in rows for name, value in row.given.items()}
        yield Row(given, functools.partial(_joined, rows))


def _joined(rows: tuple[Row, ...]) -> str:
    return "-".join([row.name() for row in rows])


def _table(names: str | Sequence[str], *, values: tuple[Any, ...], ids: Ids, meeting: Meeting | None) -> Table:
    keys = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else tuple(names)
    written = None if ids is None or callable(ids) else tuple(ids)
    assert written is None or len(written) == len(values), "an id for each case"
    rows: list[Row] = []
    for number, value in enumerate(values):
        row = (value,) if len(keys) == 1 else tuple(value)
        own = written[number] if written else None
        name = functools.partial(_name, row, own=own, ids=ids if callable(ids) else None)
        rows.append(Row(dict(zip(keys, row, strict=True)), name))
    return Table(keys, tuple(rows), meeting)


def _name(row: tuple[Any, ...], *, own: object, ids: Callable[[Any], object] | None) -> str:
    if own is not None:
        return str(own)
    return "-".join([str((ids and ids(value)) or _said(value))[:NAME_CHARS] for value in row])


def _said(value: Any) -> str:
    name = getattr(value, "__name__", value)
    return name if isinstance(name, str) else reprlib.repr(value)
