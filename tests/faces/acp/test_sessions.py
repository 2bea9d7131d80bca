"""A whole session of an editor: text, calls with diffs, permissions, cancel, load, list and fork."""

from pathlib import Path

from faces.acp.editor import editing, given_at, new, say
from turnwise.lab import Lab


async def test_a_turn_streams_text_and_shows_its_calls_with_their_diff(lab: Lab, folder: Path) -> None:
    """Issue 22: text, a call that reads, a call that edits after it was allowed, with the diff; usage in the answer."""
    async with editing(given_at(lab, "read-edit-answer")) as (client, editor):
        session = await new(client, folder)
        answer = await say(client, session, "Set it.")
    assert answer.stop_reason == "end_turn"
    assert editor.text().endswith("Done: notes.txt now says 'status: done'.")
