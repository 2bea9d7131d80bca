"""What an editor sends as a prompt, as parts for the model: the person's words, the files that they name, images."""

import base64
import binascii
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec
from acp.schema import (
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

from turnwise.coding_agent.text import visible_line
from turnwise.errors import CallerError
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.tools.workspace.read_tool import MAX_IMAGE_BYTES
from turnwise.vocab import File, Text
from turnwise.vocab.file_names import shown_name

if TYPE_CHECKING:
    from acp.schema import AudioContentBlock

    PromptBlock = (
        TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock
    )

MAX_PROMPT_CHARACTERS = 4 * 1024 * 1024  # as much as `turnwise run` takes on standard input
MAX_BLOCKS = 200
MAX_SHOWN = 200
MAX_URI = 8192
IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
NOTE = "editor"  # what the message says of such a text, which is not the person's own words


class EditorPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """`typed` are the person's words, in which `@name` stands for a file that they link; `given` is what came beside them."""

    typed: str
    given: tuple[Text | File, ...] = ()


def read_blocks(blocks: "Sequence[PromptBlock]", *, workspace: WorkspacePaths) -> EditorPrompt:
    """Raises CallerError for what is too much, or no content that turnwise takes."""
    if len(blocks) > MAX_BLOCKS:
        raise CallerError(f"the prompt has {len(blocks)} parts, more than {MAX_BLOCKS}")
    typed: list[str] = []
    given: list[Text | File] = []
    for block in blocks:
        match block:
            case TextContentBlock(text=text):
                typed.append(text)
            case ResourceContentBlock(uri=uri):
                typed.append(_link_of(uri, workspace=workspace))
            case EmbeddedResourceContentBlock(resource=TextResourceContents(uri=uri, text=text)):
                name = visible_line(uri)[:MAX_SHOWN]
                given.append(Text(f"\n\n`{name}`, as the editor has it:\n\n{text}", note=NOTE))
            case EmbeddedResourceContentBlock(resource=BlobResourceContents(blob=blob, mime_type=kind)):
                given.append(_image(blob, kind=kind or ""))
            case ImageContentBlock(data=data, mime_type=kind):
                given.append(_image(data, kind=kind))
            case _:
                raise CallerError("turnwise takes text, images, links to files and embedded texts, and no audio")
    prompt = EditorPrompt(typed="".join(typed), given=tuple(given))
    size = len(prompt.typed) + sum(len(part.text) for part in given if isinstance(part, Text))
    if size > MAX_PROMPT_CHARACTERS:
        raise CallerError(
            f"the prompt has {size:,} characters, more than {MAX_PROMPT_CHARACTERS:,}: link the file instead"
        )
    if not prompt.typed.strip() and not prompt.given:
        raise CallerError("the prompt is empty: write what the model shall do")
    return prompt


def _link_of(uri: str, *, workspace: WorkspacePaths) -> str:
    """A link to a file as a mention of it, which is judged and put in like one that was typed; any other as it stands."""
    try:
        parts = urlsplit(uri) if len(uri) <= MAX_URI else None
    except ValueError:
        parts = None
    if parts is None or parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return f" {visible_line(uri)[:MAX_URI]} "
    path = unquote(parts.path, errors="surrogateescape")
    if any(char in path for char in '"\n\0') or not path.startswith("/"):
        return f" {visible_line(shown_name(path))} "
    root = str(workspace.root)
    name = Path(path).relative_to(root).as_posix() if Path(path).is_relative_to(root) else path
    return f' @"{shown_name(name)}" '


def _image(data: str, *, kind: str) -> File:
    if kind not in IMAGES:
        raise CallerError(f"`{visible_line(kind)[:MAX_SHOWN]}` is no image that turnwise takes: PNG, JPEG, GIF or WebP")
    if len(data) > MAX_IMAGE_BYTES * 4 // 3 + 4:
        raise CallerError(f"the image has more than {MAX_IMAGE_BYTES:,} bytes: make a smaller one")
    try:
        return File(media_type=kind, data=base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        raise CallerError("the image is no base64") from None
