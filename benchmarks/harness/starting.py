"""Whether the peers of a run are set up, so that a run without them does not take the place of one that had them."""

import shutil
from collections.abc import Sequence

from harness.declaring import NODE_FOLDER, Part
from harness.records import Section


class PeersMissing(Exception):
    """The run would replace figures of peers by none; the text says which, and what to do."""


def refuse_to_lose(parts: Sequence[Part], *, earlier: Section | None) -> None:
    """Raise PeersMissing where the earlier section has figures of a peer that cannot be started here.

    They are not carried over into the new section: it says of all its figures that one run on one machine found them.
    """
    if earlier is None:
        return
    known = {record.system for record in earlier.records if record.median is not None}
    lost = [part.system for part in parts if part.is_peer and part.system in known and not is_set_up(part)]
    if lost:
        raise PeersMissing(
            f"nothing measured: {', '.join(dict.fromkeys(lost))} cannot be started here, and their figures in the results "
            "would be lost; `benchmarks/setup` installs the peers, `--only turnwise` leaves them out, `--results FILE` keeps "
            "this run elsewhere"
        )


def is_set_up(part: Part) -> bool:
    """Whether its program is there and, for node, whose program is the system's own, its packages."""
    program = part.argv[0]
    if program == "node" and not (NODE_FOLDER / "node_modules").is_dir():
        return False
    return shutil.which(program) is not None
