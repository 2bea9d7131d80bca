"""The patches by which a scripted writer writes a file: the format of openai/codex, as the tool `apply_patch` takes it.

The first patch adds the file, later ones add lines at its end. A patch has whole lines only, so the wanted text ends with a line
break, and has no carriage returns: the format cannot say them.
"""

from collections.abc import Iterable

BEGIN, END = "*** Begin Patch", "*** End Patch"


def as_lines(content: str) -> str:
    """The text as a patch can write it."""
    return content.replace("\r", "").removesuffix("\n") + "\n"


def patch_adding(lines: Iterable[str], *, path: str, exists: bool) -> str:
    """The patch that makes the file of these lines, or adds them at its end. Lines come without their breaks."""
    header = f"*** Update File: {path}\n@@" if exists else f"*** Add File: {path}"
    return "\n".join([BEGIN, header, *[f"+{line}" for line in lines], END])


def added_text(patch: str) -> str:
    """What such a patch adds."""
    return "".join([f"{line[1:]}\n" for line in patch.split("\n") if line.startswith("+")])
