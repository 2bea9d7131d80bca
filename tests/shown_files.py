"""Ways in which tools show a file, real tools among them: what stands in it has to be known in each."""

import csv
import html
import io
import json
import pprint
import quopri
import re
import shutil
import subprocess
import textwrap
import urllib.parse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from waits import HANG_S

View = Callable[[str], str]


def each_line(show: Callable[[int, str], str], *, between: str = "\n", first: int = 8) -> View:
    """Every line, shown with its number."""
    return lambda text: between.join([show(at, line) for at, line in enumerate(text.split("\n"), start=first)])


def records(make: Callable[[int, str], object], *, indent: int | None = None, is_ascii: bool = True) -> View:
    """A JSON list of what is made of each line and its number."""
    return lambda text: json.dumps(
        [make(at, line) for at, line in enumerate(text.split("\n"), start=1)], indent=indent, ensure_ascii=is_ascii
    )


def as_csv(text: str) -> str:
    said = io.StringIO()
    csv.writer(said).writerows([(at, "a.md", line) for at, line in enumerate(text.split("\n"))])
    return said.getvalue()


def as_box(text: str) -> str:
    """A table whose cells are 30 wide and break their lines, as `rich` and database clients draw them; no escape is broken."""
    rows: list[str] = []
    for at, line in enumerate(text.split("\n"), start=1):
        pieces = re.findall(r"(?:\\+u....|\\+.|%..|&\w+;|.){1,30}", line) or [""]
        rows += [f"│ {'' if number else at:>3} │ {piece:<30} │" for number, piece in enumerate(pieces)]
    return "\n".join(rows)


def as_highlighted(text: str) -> str:
    """As a page shows code: each word in an element of its own."""
    words = html.escape(text).replace("_", "_\0").split("\0")
    return "<pre>" + "".join([f'<span class="nt" style="color: #008000">{word}</span>' for word in words]) + "</pre>"


def as_pages(text: str) -> str:
    """A page ends after every second line."""
    lines = text.split("\n")
    pages = ["\n".join(lines[begin : begin + 2]) for begin in range(0, len(lines), 2)]
    return "".join([f"{page}\n\n2024-01-01 12:00   docs/a.md   Page {at}\n\n" for at, page in enumerate(pages, 1)])


def as_chunks(text: str) -> str:
    """As a search by meaning returns a page: some lines a record."""
    lines = text.split("\n")
    parts = ["\n".join(lines[begin : begin + 3]) + "\n" for begin in range(0, len(lines), 3)]
    return json.dumps([{"id": at, "score": 0.5, "source": "docs/a.md", "text": part} for at, part in enumerate(parts)])


def as_meta(text: str) -> str:
    """`less` and `vim` show the bytes that they cannot draw so."""
    return "".join([one if one.isascii() else "".join([f"<{byte:X}>" for byte in one.encode()]) for one in text])


VIEWS: dict[str, View] = {
    "as it is": str,
    "line ends of Windows": lambda text: text.replace("\n", "\r\n"),
    "double spaced": lambda text: text.replace("\n", "\n\n"),
    "json": lambda text: json.dumps({"text": text}),
    "json in json": lambda text: json.dumps(json.dumps({"text": text})),
    "json of lines": records(lambda _, line: line),
    "json of lines, indented": records(lambda _, line: f"{line}\n", indent=1),
    "json records": records(lambda at, line: {"line": at, "text": line}),
    "json records, indented": records(lambda at, line: {"line": at, "text": line}, indent=2),
    "json records, text first": records(lambda at, line: {"text": line, "line": at}, indent=1, is_ascii=False),
    "json records, text twice": records(lambda at, line: {"raw": f"{line}\n", "no": at, "text": line}),
    "json pairs": records(lambda at, line: [at, line]),
    "json by number": lambda text: json.dumps({str(at): line for at, line in enumerate(text.split("\n"))}),
    "json lines of a log": each_line(
        lambda at, line: json.dumps({"time": f"2024-01-01T10:00:{at:02}.5Z", "level": "info", "host": "a", "msg": line})
    ),
    "json chunks": as_chunks,
    "csv": as_csv,
    "tsv": each_line(lambda at, line: f"a.md\t{at}\t{line}"),
    "markdown table": each_line(lambda at, line: f"| {at} | `{line.replace('|', chr(92) + '|')}` | a note |"),
    "box": as_box,
    "html list": each_line(lambda _, line: f"  <li>{html.escape(line)}</li>"),
    "html table": each_line(lambda at, line: f'<tr id="L{at}"><td>{at}</td><td>{html.escape(line)}</td></tr>'),
    "html colours": as_highlighted,
    "html twice": lambda text: html.escape(html.escape(text)),
    "xml references": lambda text: html.escape(text).encode("ascii", "xmlcharrefreplace").decode(),
    "xml lines": each_line(lambda at, line: f'<line n="{at}">{line}</line>'),
    "xml lines, escaped": each_line(lambda at, line: f'<line n="{at}">{html.escape(line)}</line>', between=""),
    "repr": repr,
    "ascii": ascii,
    "repr of bytes": lambda text: repr(text.encode()),
    "repr of lines": lambda text: repr(text.split("\n")),
    "pprint": lambda text: pprint.pformat(text.split("\n"), width=60),
    "names of characters": lambda text: text.encode("ascii", "namereplace").decode(),
    "latin-1": lambda text: text.encode().decode("latin-1"),
    "percent": urllib.parse.quote,
    "a form": lambda text: urllib.parse.urlencode({"q": text}),
    "percent twice": lambda text: urllib.parse.quote(urllib.parse.quote(text, safe=""), safe=""),
    "quoted-printable": lambda text: quopri.encodestring(text.encode()).decode(),
    "bytes of less": as_meta,
    "quoted mail": each_line(lambda _, line: f"> > {line}"),
    "comment": each_line(lambda _, line: f"    // {line}"),
    "yaml": each_line(lambda _, line: f"    {line}"),
    "added": each_line(lambda _, line: f"+{line}"),
    "numbers": each_line(lambda at, line: f"{at:6}→{line}"),
    "numbers, glued": each_line(lambda at, line: f"{at}:{line}"),
    "joined in code": each_line(lambda _, line: f"  {json.dumps(line)} + '\\n' +"),
    "blame": each_line(lambda at, line: f"^1a2b3c{at} (Ada Lovelace 2024-01-01 10:00:00 +0100 {at}) {line}"),
    "log": each_line(lambda at, line: f"Jan 01 10:00:{at:02} host {'app' if at % 2 else 'db'}[{at}]: {line}"),
    "two logs": each_line(lambda at, line: f"web  | {line}\ndb   | checkpoint {at} complete in 12 ms"),
    "colours": each_line(
        lambda at, line: f"\x1b[35ma.md\x1b[0m:\x1b[32m{at}\x1b[0m:\x1b[01;31m\x1b[K{line}\x1b[m\x1b[K"
    ),
    "pages": as_pages,
    "non-breaking blanks": lambda text: text.replace(" ", "\xa0"),
    "bold": lambda text: re.sub(r"\b(name|read|path|tool_call)\b", r"**\1**", text),
    "dedented": textwrap.dedent,
}


@dataclass(frozen=True)
class Tool:
    """A real tool; `{file}` in its arguments is the file that it shows, `{other}` an empty one."""

    arguments: Sequence[str]
    is_input: bool = False  # the file is what it reads

    @property
    def is_here(self) -> bool:
        return shutil.which(self.arguments[0]) is not None

    def show(self, text: str, *, folder: Path) -> str:
        file, other = folder / "a.md", folder / "b.md"
        file.write_text(text + "\n", encoding="utf-8")
        other.write_text("", encoding="utf-8")
        given = [one.replace("{file}", str(file)).replace("{other}", str(other)) for one in self.arguments]
        done = subprocess.run(
            given,
            capture_output=True,
            timeout=HANG_S,
            cwd=folder,
            input=text.encode() if self.is_input else b"",
            check=False,
        )
        return done.stdout.decode(errors="replace")


TOOLS = {
    " ".join(arguments): Tool(arguments)
    for arguments in (
        ("cat", "-A", "{file}"),
        ("cat", "-vn", "{file}"),
        ("nl", "-ba", "{file}"),
        ("nl", "-w1", "-s", ")", "{file}"),
        ("grep", "-n", "", "{file}", "{other}"),
        ("rg", "-n", "--no-config", "", "{file}"),
        ("rg", "--json", "--no-config", "", "{file}"),
        ("rg", "--json", "--no-config", "tool|read|a|e", "-C3", "{file}"),
        ("rg", "--color=ansi", "--no-config", "-n", "e", "-C9", "{file}"),
        ("git", "diff", "--no-index", "{other}", "{file}"),
        ("git", "diff", "--no-index", "--color", "--word-diff", "{other}", "{file}"),
        ("diff", "-y", "-W", "4000", "{file}", "{file}"),
        ("diff", "-y", "-W", "4000", "{file}", "{other}"),
        ("diff", "-y", "-W", "4000", "{other}", "{file}"),
        ("pr", "-n", "-l", "14", "{file}"),
        ("fold", "-w", "60", "{file}"),
        ("fold", "-w", "7", "{file}"),
        ("column", "-t", "-l", "2", "{file}"),
        ("sed", "-n", "l 50", "{file}"),
    )
}
