"""A provider with a store of objects, on loopback: files, batches, responses and the rest of three vendors' APIs.

It has one key for everybody, as a provider has for a gateway, so whoever reaches it reaches every object. It keeps what it was
sent.
"""

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

KEY = "sk-of-the-gateway"
Object = dict[str, Any]


class Kind(NamedTuple):
    """`name`: how ids of the kind begin, the folder of its names at Google. `kind`: what `object` or `type` says."""

    name: str
    kind: str = ""
    items: str = "data"
    google: bool = False


KINDS: Mapping[str, Kind] = {
    "/v1/files": Kind("file-", "file"),
    "/v1/batches": Kind("batch_", "batch"),
    "/v1/messages/batches": Kind("msgbatch_", "message_batch"),
    "/v1/responses": Kind("resp_", "response"),
    "/v1/conversations": Kind("conv_", "conversation"),
    "/v1/containers": Kind("cntr_", "container"),
    "/v1/vector_stores": Kind("vs_", "vector_store"),
    "/v1/chat/completions": Kind("chatcmpl-", "chat.completion"),
    "/v1/uploads": Kind("upload_", "upload"),
    "/v1beta/files": Kind("files/", items="files", google=True),
    "/v1beta/cachedContents": Kind("cachedContents/", items="cachedContents", google=True),
    "/v1beta/batches": Kind("batches/", items="operations", google=True),
    "/v1beta/interactions": Kind("int_", "interaction"),
}
USAGE = {
    "input_tokens": 1,
    "output_tokens": 1,
    "total_tokens": 2,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
}


class Received(NamedTuple):
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes


class ObjectStore:
    """`objects` by path and id, oldest first."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.received: list[Received] = []
        self.objects: dict[str, dict[str, Object]] = {path: {} for path in KINDS}
        self.contents: dict[str, bytes] = {}
        self._numbers = count(1)

    def add(self, path: str, **fields: Any) -> Object:
        kind, number = KINDS[path], next(self._numbers)
        id = f"{kind.name}{number:04}x{self.url.rpartition(':')[2]}"
        told: Object = {"name": id} if kind.google else {"id": id, "object": kind.kind, "type": kind.kind}
        made = {**told, "created_at": 1, "status": "completed", **fields}
        self.objects[path][id.rpartition("/")[2]] = made
        return made

    def answer(self, asked: Received) -> tuple[int, str, bytes]:
        if "x-goog-api-key" in asked.headers:
            asked = asked._replace(path=asked.path.replace("/v1/", "/v1beta/"))
        found = next(
            (
                (path, asked.path.removeprefix(path).lstrip("/"))
                for path in sorted(KINDS, key=len, reverse=True)
                if asked.path == path or asked.path.startswith(f"{path}/")
            ),
            None,
        )
        if asked.path.startswith("/upload/"):
            return self._uploaded(asked)
        if asked.path.endswith(":batchGenerateContent"):
            return _json(self.add("/v1beta/batches", metadata={"state": "BATCH_STATE_PENDING"}))
        if asked.path.endswith(":generateContent"):
            return _json(
                {"candidates": [{"content": {"role": "model", "parts": [{"text": "hi"}]}, "finishReason": "STOP"}]}
            )
        if found is None:
            return _json({"text": "heard"}) if asked.path == "/v1/audio/transcriptions" else _json({}, 404)
        path, rest = found
        if not rest:
            return self._listed(path, asked) if asked.method == "GET" else self._made(path, asked)
        first, _, beneath = rest.partition("/")
        id, _, verb = first.partition(":")
        if (known := self.objects[path].get(id)) is None:
            return _json({"error": {"message": "no such object at the provider"}}, 404)
        if asked.method == "DELETE" and not beneath:
            del self.objects[path][id]
            return _json({"id": id, "deleted": True, "object": "deleted", "type": f"{KINDS[path].kind}_deleted"})
        if beneath in ("content", "results") or verb == "download":
            return 200, "application/octet-stream", self.contents.get(id, b"<html>of a file</html>\x00\xff")
        if beneath == "parts":
            part = f"part_{next(self._numbers):04}"
            return _json({"id": part, "object": "upload.part", "created_at": 1, "upload_id": id})
        if beneath in ("items", "input_items", "files", "messages"):
            return _json({"object": "list", "data": [], "has_more": False, "first_id": None, "last_id": None})
        return _json(known)

    def _made(self, path: str, asked: Received) -> tuple[int, str, bytes]:
        fields: Object = {}
        with contextlib.suppress(ValueError):
            fields = json.loads(asked.body)
        match path:
            case "/v1/responses":
                return self._responded(fields)
            case "/v1/files":
                made = self.add(
                    path, filename="f", bytes=len(asked.body), purpose="batch", mime_type="a/b", size_bytes=1
                )
                self.contents[made["id"]] = asked.body
            case "/v1/batches":
                output = self.add("/v1/files", filename="out.jsonl", bytes=1, purpose="batch_output")
                made = self.add(path, **{"endpoint": "/v1/responses", **fields, "output_file_id": output["id"]})
            case "/v1/chat/completions":
                message = {"role": "assistant", "content": "hi"}
                choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
                usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
                made = self.add(path, model="m", created=1, choices=[choice], usage=usage)
            case _:
                made = self.add(
                    path,
                    **{name: fields[name] for name in ("name", "model") if name in fields}
                    if not KINDS[path].google
                    else {},
                )
        return _json(made)

    def _responded(self, fields: Object) -> tuple[int, str, bytes]:
        content = {"type": "output_text", "text": "hi", "annotations": [], "logprobs": []}
        message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [content]}
        output: list[Object] = [message]
        if any(isinstance(tool.get("container"), dict) for tool in fields.get("tools", [])):
            container = self.add("/v1/containers", name="auto")["id"]
            call = {"type": "code_interpreter_call", "id": "ci_1", "status": "completed", "code": "1", "outputs": []}
            output.insert(0, {**call, "container_id": container})
        told = {"output": output, "model": fields.get("model"), "usage": USAGE, "tools": [], "tool_choice": "auto"}
        more = {"parallel_tool_calls": True, "error": None, "incomplete_details": None, "instructions": None}
        response = self.add("/v1/responses", metadata={}, **told, **more)
        if not fields.get("store", True):
            del self.objects["/v1/responses"][response["id"]]
        if not fields.get("stream"):
            return _json(response)
        begun = {**response, "status": "in_progress", "output": [], "usage": None}
        events: list[Object] = [{"type": "response.created", "response": begun}]
        for at, item in enumerate(output):
            place = {"output_index": at, "item_id": item["id"]}
            if item["type"] == "message":
                part = {**place, "content_index": 0}
                empty = {**content, "text": ""}
                events += [
                    {
                        "type": "response.output_item.added",
                        "output_index": at,
                        "item": {**item, "content": [], "status": "in_progress"},
                    },
                    {"type": "response.content_part.added", **part, "part": empty},
                    {"type": "response.output_text.delta", **part, "delta": "hi", "logprobs": []},
                    {"type": "response.output_text.done", **part, "text": "hi", "logprobs": []},
                    {"type": "response.content_part.done", **part, "part": content},
                ]
            else:
                events.append({"type": "response.output_item.added", "output_index": at, "item": item})
            events.append({"type": "response.output_item.done", "output_index": at, "item": item})
        events.append({"type": "response.completed", "response": response})
        told_events = [{**event, "sequence_number": at} for at, event in enumerate(events)]
        text = "".join([f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in told_events])
        return 200, "text/event-stream", text.encode()

    def _listed(self, path: str, asked: Received) -> tuple[int, str, bytes]:
        kind, every = KINDS[path], list(self.objects[path].values())
        query = {name: values[0] for name, values in asked.query.items()}
        field = "name" if kind.google else "id"
        after = query.get("pageToken") or query.get("after") or query.get("after_id") or ""
        ids = [one[field] for one in every]
        begin = ids.index(after) + 1 if after else 0
        size = int(query.get("pageSize") or query.get("limit") or 20)
        page = every[begin : begin + min(size, 100)]
        has_more = begin + len(page) < len(every)
        if kind.google:
            return _json({kind.items: page, **({"nextPageToken": page[-1]["name"]} if has_more else {})})
        ends = {"first_id": page[0]["id"] if page else None, "last_id": page[-1]["id"] if page else None}
        return _json({"object": "list", "data": page, "has_more": has_more, **ends})

    def _uploaded(self, asked: Received) -> tuple[int, str, bytes]:
        if "upload_id" not in asked.query:
            self._upload = (
                f"{self.url}/upload/v1beta/files?upload_id=up-{next(self._numbers)}&upload_protocol=resumable"
            )
            return 200, f"upload {self._upload}", b""
        made = self.add("/v1beta/files", mimeType="text/plain", state="ACTIVE", sizeBytes=str(len(asked.body)))
        made["uri"] = f"https://generativelanguage.googleapis.com/v1beta/{made['name']}"
        self.contents[made["name"].removeprefix("files/")] = asked.body
        return 200, "upload final", json.dumps({"file": made}).encode()


def _json(value: object, status: int = 200) -> tuple[int, str, bytes]:
    return status, "application/json", json.dumps(value).encode()


@contextlib.contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Served until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Received(self.command, parts.path, parse_qs(parts.query), headers, body)
            store.received.append(asked)
            status, kind, answer = store.answer(asked)
            self.send_response(status)
            if kind.startswith("upload "):
                told = kind.removeprefix("upload ")
                self.send_header("x-goog-upload-status", "final" if told == "final" else "active")
                if told != "final":
                    self.send_header("x-goog-upload-url", told)
                kind = "application/json"
            self.send_header("content-type", kind)
            self.send_header("x-of-the-upstream", "1")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815 (the server's names)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    store = ObjectStore(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
