"""A block that is a call, or several."""

import msgspec

from turnwise.assembly.text_calls.block_cursor import BlockReading
from turnwise.assembly.text_calls.syntaxes import Syntax


class CallBlock(msgspec.Struct):
    """`text` is all of it, with the blanks before it."""

    text: str
    syntax: Syntax
    found: BlockReading

    @property
    def is_mere_name(self) -> bool:
        """Whether it is a tool's name between two tags, on one line, and nothing else."""
        is_line = "\n" not in self.text.strip() and (self.found.syntax or self.syntax.name) in ("glm", "qwen3-coder")
        return is_line and all(call.arguments == "{}" for call in self.found.calls)
