"""Give a model an image, let a tool answer with one, and keep the image that the model draws."""

import base64
import tempfile
from pathlib import Path

from models import says
from turnwise import Agent, File, Text, tool
from turnwise.testing import call

RED = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC")
folder = Path(tempfile.mkdtemp())
(folder / "kitchen.png").write_bytes(RED)


@tool(effect="read")
def photo(room: str) -> File:
    """Show a photo of a room."""
    return File(media_type="image/png", data=(folder / f"{room}.png").read_bytes())


agent = Agent(
    says(
        call("photo", room="kitchen"),
        [Text("Yes, it has. Here is another idea."), File(media_type="image/png", data=RED)],
        family="gemini",  # a family whose models draw
    ),
    tools=[photo],
)
# A File has bytes (`data=`), or the address of an image that the provider fetches (`url=`).
sample = File(media_type="image/png", data=RED, name="paint.png")
result = agent.run_sync(["Has my kitchen this colour?", sample])
print(result.text)
for message in result.new_messages:
    print(message.role, [type(part).__name__ for part in message.parts])
drawn = [part for part in result.new_messages[-1].parts if isinstance(part, File) and part.data]
for number, file in enumerate(drawn):
    (folder / f"idea-{number}.png").write_bytes(file.data or b"")
    print(f"idea-{number}.png", file.media_type, file.data == RED)
