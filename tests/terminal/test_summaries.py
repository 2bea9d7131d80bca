"""Summaries at the terminal: each is seen, in the result of a run and in its session."""

import json
from pathlib import Path

import pytest

from terminal.running import Cli, at, running_lab
from turnwise.lab.script import load_scripts

SCRIPTS = load_scripts(Path(__file__).parents[1] / "lab" / "room")
SMALL = ("--context-window", "32000", "--max-output-tokens", "4000", "--max-steps", "120")


@pytest.mark.costly
def test_each_summary_is_named_and_the_session_goes_on_from_it(cli: Cli, folder: Path) -> None:
    """`--json` and `sessions show` say as many requests of purpose `compact` as the lab was asked for summaries; all messages
    are shown; the next run begins with the summary, and knows the first message."""
    for part in range(1, 125):
        text = "There is little of note here.\n" * 100 + f"the next part is part-{part + 1:03}.txt\n"
        (folder / f"part-{part:03}.txt").write_text(text)
    with running_lab([SCRIPTS["remembers"]]) as lab:
        model = at(lab, "remembers")
        first = "My cat is called Maunz. Begin with part-001.txt."
        ran = cli("run", first, "--json", *SMALL, *model).events()[-1]
        summaries = sum([one.is_summary for one in lab.requests])
        assert summaries > 0
        assert ran["requests_by_purpose"] == {"step": 120, "compact": summaries}
        assert lab.count() == ran["requests"] == 120 + summaries
        again = cli("run", "What are they called?", "--continue", "--json", *SMALL).events()[-1]
        assert again["text"] == "The cat is Maunz, the dog (I do not know)."
        assert again["requests_by_purpose"] == {"step": 1}
        assert len(lab.requests[-1].body) < max([len(one.body) for one in lab.requests])
        assert [one.refused for one in lab.requests if one.refused] == []
    whole = json.loads(cli("sessions", "show", "--json", ran["session"]).out)
    assert [one["requests"] for one in whole["turns"]] == [ran["requests_by_purpose"], {"step": 1}]
    assert len(whole["messages"]) == 120 * 2 + 2
    shown = cli("sessions", "show", ran["session"]).out
    assert f"\n{121 + summaries} requests: 121 steps, {summaries} summaries\n" in shown
