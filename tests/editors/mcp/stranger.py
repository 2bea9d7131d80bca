"""An MCP server of the tests' own, without any library: it speaks the protocol line by line, and misbehaves as it is told.

Run as `python -I -S stranger.py HABIT...`, in a folder with `tools.json`. What happens to it, it writes into `seen` there.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

HABITS = set(sys.argv[1:])
SEEN = Path("seen")


def note(what: str) -> None:
    with SEEN.open("a", encoding="utf-8") as file:
        file.write(what + "\n")


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def texts(*said: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": one} for one in said]}


def receive() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        ended()
    return json.loads(line)


def ended() -> None:
    note("input ended")
    if "stays" in HABITS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            signal.pause()
    sys.exit(0)


def asked_of_model(requests: list[dict[str, Any]], *, together: bool) -> list[Any]:
    """What the client answers to each: the result, or an error's message."""
    answers: dict[str, Any] = {}
    for number, params in enumerate(requests):
        send(id=f"m{number}", method="sampling/createMessage", params=params)
        while len(answers) <= number and not together:
            hear(answers)
    while len(answers) < len(requests):
        hear(answers)
    return [answers[f"m{number}"] for number in range(len(requests))]


def hear(answers: dict[str, Any]) -> None:
    message = receive()
    if message.get("method") == "notifications/cancelled":
        note(f"cancelled {message['params']['requestId']}")
    elif "method" not in message:
        answers[message["id"]] = message.get("result") or message["error"]["message"]


def tools() -> list[dict[str, Any]]:
    return json.loads(Path("tools.json").read_text(encoding="utf-8"))


def call(message: dict[str, Any]) -> None:
    params = message["params"]
    name, arguments = params["name"], params.get("arguments") or {}
    note(f"call {name}")
    match name:
        case "die":
            os._exit(3)
        case "die_saying":
            sys.stderr.write(f"cannot work on {arguments['text']}\n")
            sys.stderr.flush()
            os._exit(3)
        case "die_once":
            if SEEN.read_text(encoding="utf-8").count("call die_once") == 1:
                os._exit(4)
            result = texts("done at last")
        case "hang":
            return
        case "hang_once":
            if SEEN.read_text(encoding="utf-8").count("call hang_once") == 1:
                return
            result = texts("done at last")
        case "flood":
            line = json.dumps(
                {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
            )
            sys.stdout.write((line + "\n") * 30_000)
            sys.stdout.flush()
            return
        case "answers":
            line = json.dumps({"jsonrpc": "2.0", "id": 1_000_000, "result": {}})
            sys.stdout.write((line + "\n") * 30_000)
            sys.stdout.flush()
            return
        case "raw":
            line = arguments["line"].replace("ID", str(message["id"]))
            sys.stdout.buffer.write(line.encode("latin-1") + b"\n")
            sys.stdout.flush()
            return
        case "deep":
            inner = '{"a":' * 5_000 + "1" + "}" * 5_000
            sys.stdout.write(f'{{"jsonrpc":"2.0","id":{message["id"]},"result":{{"structuredContent":{inner}}}}}\n')
            sys.stdout.flush()
            return
        case "parts":
            result = texts(*["a part"] * 1_000)
        case "ask_often":
            said: list[str] = []
            for number in range(60):
                form = {"message": f"Again {number}?", "requestedSchema": {"type": "object", "properties": {}}}
                send(id=f"q{number}", method="elicitation/create", params=form)
                said.append(receive()["result"]["action"])
            result = texts(" ".join(said))
        case "ask_url":
            url = {"mode": "url", "message": "Go.", "url": arguments["url"], "elicitationId": "1"}
            send(id="u", method="elicitation/create", params=url)
            result = texts(receive()["result"]["action"])
        case "child":
            child = subprocess.Popen(["sleep", "600"], start_new_session=True)
            result = texts(str(child.pid))
        case "change":
            changed = [{**one, "description": "changed"} for one in tools()]
            Path("tools.json").write_text(json.dumps(changed), encoding="utf-8")
            send(method="notifications/tools/list_changed")
            result = texts("changed")
        case "progress":
            for done in range(3):
                token = params["_meta"]["progressToken"]
                step = {"progressToken": token, "progress": done, "total": 3, "message": f"step {done}"}
                send(method="notifications/progress", params=step)
            result = texts("walked")
        case "ask":
            form = {"message": "Which colour?", "requestedSchema": arguments["schema"]}
            send(id="q", method="elicitation/create", params=form)
            heard = receive()
            result = texts(json.dumps(heard.get("result") or heard["error"]["message"], sort_keys=True))
        case "sample":
            wanted = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5}
            send(id="s", method="sampling/createMessage", params=wanted)
            result = texts(receive()["error"]["message"])
        case "ask_model":
            result = texts(json.dumps(asked_of_model(arguments["requests"], together=arguments.get("together", False))))
        case "ask_model_late":
            send(id=message["id"], result=texts("done"))
            note("late " + json.dumps(asked_of_model(arguments["requests"], together=False)))
            return
        case "environment":
            result = texts(json.dumps(dict(os.environ)))
        case "write":
            try:
                Path(arguments["path"]).write_text("written", encoding="utf-8")
                result = texts("written")
            except OSError as error:
                result = texts(f"no: {error.strerror}")
        case "given":
            result = arguments["result"]
        case "nonsense":
            send(id=message["id"], result={"content": "no list"})
            return
        case "fail":
            result = {**texts("it is broken"), "isError": True}
        case "many":
            result = {
                "content": [
                    {"type": "text", "text": "a"},
                    {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"},
                    {"type": "resource", "resource": {"uri": "note://1", "text": "hello"}},
                    {"type": "resource_link", "uri": "note://2", "name": "two"},
                    {"type": "audio", "data": "???", "mimeType": "audio/wav"},
                ]
            }
        case _:
            result = texts(str(arguments.get("text", name)))
    send(id=message["id"], result=result)


def answer(message: dict[str, Any]) -> None:
    method = message.get("method", "")
    if method == "notifications/cancelled":
        note(f"cancelled {message['params']['requestId']}")
    if "id" not in message or not method:
        return
    match method:
        case "initialize":
            if "hangs" in HABITS:
                note("hangs")
                return
            can: dict[str, Any] = {"tools": {"listChanged": True}, "prompts": {}, "resources": {}}
            about = {"protocolVersion": "2025-06-18", "capabilities": can, "serverInfo": {"name": "s", "version": "1"}}
            send(id=message["id"], result=about)
        case "tools/list" if "lies" in HABITS:
            send(id=message["id"], result={"tools": {"name": 5}})
        case "tools/list" if "endless" in HABITS:
            send(id=message["id"], result={"tools": tools(), "nextCursor": "again"})
        case "tools/list":
            send(id=message["id"], result={"tools": tools()})
        case "prompts/list" if "no prompts" in HABITS:
            send(id=message["id"], error={"code": -32601, "message": "no such method"})
        case "prompts/list" if "odd prompts" in HABITS:
            odd = [{"name": None}, {"name": "greet", "description": 5}, {"name": "bye", "arguments": [{"name": 1}]}]
            send(id=message["id"], result={"prompts": odd, "nextCursor": None})
        case "prompts/list":
            listed = {"name": "greet", "description": "Greet.", "arguments": [{"name": "who", "required": True}]}
            send(id=message["id"], result={"prompts": [listed]})
        case "prompts/get":
            who = message["params"]["arguments"]["who"]
            if who.startswith("asks"):
                form = {"message": f"May I greet {who}?", "requestedSchema": {"type": "object", "properties": {}}}
                send(id="p", method="elicitation/create", params=form)
                said = receive()
                who = json.dumps(said.get("result") or said["error"]["message"])
            said = {"type": "text", "text": f"Greet {who}."}
            send(id=message["id"], result={"messages": [{"role": "user", "content": said}]})
        case "resources/list" if "dies in its list" in HABITS and "listing" not in SEEN.read_text(encoding="utf-8"):
            note("listing")
            os._exit(4)
        case "resources/list":
            odd = (
                [{"name": "no address"}, {"uri": "note://0", "name": "zero\nnote://9 (nine)"}]
                if "odd resources" in HABITS
                else []
            )
            send(id=message["id"], result={"resources": [*odd, {"uri": "note://1", "name": "one"}]})
        case "resources/read":
            contents = {"uri": message["params"]["uri"], "text": "what the note says"}
            if contents["uri"].startswith("ask:"):
                form = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
                send(id="r", method="elicitation/create", params={"message": "Which?", "requestedSchema": form})
                contents["text"] = json.dumps(receive().get("result"))
            send(id=message["id"], result={"contents": [contents]})
        case "tools/call":
            call(message)
        case _:
            send(id=message["id"], error={"code": -32601, "message": "no such method"})


if "tells its pid" in HABITS:
    Path("pid").write_text(str(os.getpid()), encoding="utf-8")
note("started")
if "dies" in HABITS:
    sys.stderr.write("no luck today\n")
    sys.exit(5)
if "dies once" in HABITS and SEEN.read_text(encoding="utf-8").count("started") == 1:
    sys.exit(6)
if "babbles" in HABITS:
    sys.stdout.write("this is no message\n")
while True:
    answer(receive())
