"""Let canitoolcall's probe judge `turnwise gateway` before a server that leaves every call in its text, one syntax after another.

`scripts/calls_in_text.py` runs it; the package is in a folder that it gives. The server answers the probe's scenarios as a model
would, in the syntaxes of `tests/text_calls.py`, whole and in small pieces.
"""

import contextlib
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from text_calls import WRITERS, Call  # noqa: E402

PIECE = 7  # characters of a streamed piece
READY_S, END_S = 60.0, 30.0
HARMONY = ("harmony",)
# What the model of each scenario writes: words of reasoning, calls, words. Found by words of the last message.
EVENT = {
    "title": "Design review",
    "start": "2026-10-01T15:00:00Z",
    "attendees": [{"name": "Ana", "email": "ana@example.com"}, {"name": "Bo", "email": "bo@example.com"}],
    "location": {"city": "Berlin", "room": "4.12"},
}
ANSWERS: dict[str, tuple[str, list[Call], str]] = {
    "weather in Paris right now": ("", [("get_weather", {"city": "Paris"})], ""),
    "in Paris and in Tokyo": ("", [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Tokyo"})], ""),
    "17 + 25": ("", [], "42"),
    "Create an event": ("", [("create_event", EVENT)], ""),
    "Save a note": (
        "",
        [("save_note", {"title": "Grüße aus Zürich", "body": "Café ☕ in 東京 — naïve résumé 🚀"})],
        "",
    ),
    "time is it on the server": ("", [("get_server_time", {})], ""),
    "about Lisbon": ("", [("get_weather", {"city": "Lisbon"})], ""),
    "temp_c": ("", [], "It is 18 degrees in Paris, and clear."),
    "which number is larger": ("9.9 is 9.90, and that is more than 9.11.", [("record_answer", {"answer": "9.9"})], ""),
}


def written(syntax: str, asked: str) -> str:
    """What the model writes; a model of harmony has marks of its own around its reasoning."""
    thought, calls, words = next(answer for key, answer in ANSWERS.items() if key in asked)
    if syntax in HARMONY and thought:
        thought = f"<|channel|>analysis<|message|>{thought}<|end|>"
    elif thought:
        thought = f"<think>{thought}</think>\n"
    return thought + (WRITERS[syntax](calls) if calls else words)


class Upstream(http.server.BaseHTTPRequestHandler):
    """Chat Completions of a server without a parser of calls. The model's name is the syntax."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = written(asked["model"], json.dumps(asked["messages"][-1]["content"], ensure_ascii=False))
        top = {"id": "c", "created": 1, "model": asked["model"]}
        usage = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
        if not asked.get("stream"):
            message = {"role": "assistant", "content": text}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self.answer(
                "application/json",
                json.dumps({**top, "object": "chat.completion", "choices": [choice], "usage": usage}),
            )
            return
        pieces = [{"content": text[at : at + PIECE]} for at in range(0, len(text), PIECE)]
        told: list[dict[str, Any]] = [{"index": 0, "delta": one, "finish_reason": None} for one in pieces]
        told.append({"index": 0, "delta": {}, "finish_reason": "stop"})
        chunks = [{**top, "object": "chat.completion.chunk", "choices": [one]} for one in told]
        self.answer(
            "text/event-stream", "".join([f"data: {json.dumps(one)}\n\n" for one in chunks]) + "data: [DONE]\n\n"
        )

    def answer(self, kind: str, text: str) -> None:
        content = text.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        return


@contextlib.contextmanager
def gateway() -> Generator[str]:
    """The address of a gateway before such a server."""
    upstream = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as home:
        address = f"http://127.0.0.1:{upstream.server_address[1]}/v1"
        command = [
            sys.executable,
            "-m",
            "turnwise",
            "gateway",
            "--upstream",
            address,
            "--port",
            "0",
            "--json",
            "--quiet",
        ]
        env = {**os.environ, "HOME": home, "XDG_CONFIG_HOME": home, "XDG_STATE_HOME": home, "XDG_DATA_HOME": home}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
            try:
                assert process.stdout is not None
                yield json.loads(process.stdout.readline())["url"] + "/v1"
            finally:
                process.terminate()
                process.wait(END_S)
    upstream.shutdown()


def probed(package: Path) -> tuple[int, list[str]]:
    """How many checks of the probe passed, and which did not, by syntax."""
    sys.path.insert(0, str(package))
    from canitoolcall.probe import probe  # pyright: ignore[reportMissingImports]

    passed, failed = 0, list[str]()
    with gateway() as address:
        for syntax in WRITERS:
            for one in probe(address, syntax).outcomes:
                passed += one.status == "pass"
                if one.status != "pass":
                    way = "a stream" if one.stream else "a body"
                    failed.append(f"{syntax}: {one.scenario_id}, {one.check}, {way}: {one.status}, {one.detail}")
    return passed, failed


if __name__ == "__main__":
    number, left = probed(Path(sys.argv[1]))
    print("\n".join([*left, f"{number} checks passed, {len(left)} not"]))
    sys.exit(1 if left else 0)
