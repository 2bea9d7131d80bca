"""`turnwise replay --export`: one file of a session, for somebody else to replay."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from turnwise.drivers.replaying.session_file import write_session
from turnwise.drivers.replaying.without_secrets import without_secrets
from turnwise.faces.cli.events import write_line
from turnwise.faces.cli.lines import say
from turnwise.faces.cli.replaying import recorded_of
from turnwise.faces.cli.text import style, visible_line
from turnwise.faces.saying import many

ADVICE = "it holds the prompts, the answers and what tools read: look through it before you give it away"
UNLIKE = "the file does not replay to the same commands: a text that was replaced decides something; hide a longer one"
NOWHERE = "the session does not hold it, so nothing was replaced for it: check how it is written"


def export_session(session_or_file: str, *, file: Path, hide: Sequence[str], as_json: bool) -> None:
    """Write the file, and say what was replaced. Raises CallerError."""
    hidden = without_secrets(recorded_of(session_or_file), env=os.environ, texts=hide)
    write_session(file, hidden.session, replaced=hidden.secrets)
    size = file.stat().st_size
    for number, times in enumerate(hidden.times, start=1):
        if not times:
            say(style(f"--hide, text {number} of {len(hide)}: {NOWHERE}", "yellow", stream=sys.stderr))
    if as_json:
        said = {
            "event": "export",
            "file": str(file),
            "bytes": size,
            "replaced": hidden.secrets,
            "hidden": list(hidden.times),
        }
        write_line({**said, "same": hidden.replays_alike, "exit_code": 0})
        return
    say(f"wrote {visible_line(str(file))}: {size:,} bytes, {many(hidden.secrets, 'secret')} replaced; {ADVICE}")
    if not hidden.replays_alike:
        say(style(UNLIKE, "yellow", stream=sys.stderr))
