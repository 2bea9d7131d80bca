"""The provider itself, without a network: a request's path and body in, a reply's pieces out."""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from turnwise.lab import strict
from turnwise.lab.caches import CacheUse, PromptCaches
from turnwise.lab.families import FAMILIES, Route, gemini
from turnwise.lab.families.family import Conversation, LabFamily
from turnwise.lab.faults import EVENT_STREAM, JSON, Outgoing, bend, refusal, sent_until, stream_of
from turnwise.lab.raw import Raw, dump, parse, table, text
from turnwise.lab.replay import RecordedConversation, Unexpected, find
from turnwise.lab.replies import (
    LabReply,
    LabRequest,
    next_reply,
    tokens,
    turns_in,
    with_cache_use,
    with_parts,
    with_signature,
)
from turnwise.lab.script import FaultName, FaultPoint, Script
from turnwise.lab.strict import ModelRules, Rejected
from turnwise.lab.strict.dialects import ServerDialect
from turnwise.lab.strict.thinking import Judged, ThinkingJudge
from turnwise.lab.writer import room_of, writer_reply
from turnwise.testing.frames import frames_of
from turnwise.vocab import Frame, Part, Reasoning, Request, Response, Usage, UsageReported, calls_of, text_of
from turnwise.wire.family import BadRequest, Family
from turnwise.wire.family import family as find_family
from turnwise.wire.profiles import Limits
from turnwise.wire.sse import SseParser

# What the lab received, and what it answered, as data.


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `request` is the body as turnwise reads it (None if it cannot), for information only: no reply depends
    on it being right. `refused` is why the lab answered 400 or the like; `step` counts the script's steps from 1, `turn` the
    user's turns in the conversation that was sent; `usage` is what the answer said, `is_summary` that it was one; `fault` is
    what went wrong with the answer on purpose, and `fault_at` where. `betas` is what `anthropic-beta` said, `dropped` are the
    places of thinking that the model was not shown. `message` is what came over a WebSocket; `body` is the same request whole."""

    number: int
    family: str
    path: str
    model: str
    streamed: bool
    status: int
    body: bytes
    request: Request | None = None
    refused: str | None = None
    turn: int | None = None
    step: int | None = None
    usage: Usage | None = None
    is_summary: bool = False
    fault: FaultName | None = None
    fault_at: FaultPoint | None = None
    betas: str = ""
    dropped: tuple[str, ...] = ()
    message: bytes = b""


LISTED = "number family path model streamed status refused turn step usage is_summary fault fault_at".split()


def counted(
    requests: Sequence[Received], *, model: str | None = None, family: str | None = None, status: int | None = None
) -> int:
    """How many of them match."""
    return sum(
        1
        for one in requests
        if (model is None or one.model == model)
        and (family is None or one.family == family)
        and (status is None or one.status == status)
    )


def listing(requests: Sequence[Received]) -> bytes:
    """The answer of `GET /_lab/requests`: how many, by model, and each with its body."""
    each = [{**{name: getattr(one, name) for name in LISTED}, "body": readable(one.body)} for one in requests]
    return dump({"count": len(requests), "by_model": Counter(one.model for one in requests), "requests": each})


def readable(body: bytes) -> object:
    """The body as JSON where it is JSON, else as text."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body.decode("utf-8", "replace")


CREATED = 1760000000  # a fixed moment: the lab has no clock
FIRST_TEXT = re.compile(r'":\s*"([^"\\]+)')  # in JSON
CREATED_AT = "2025-10-09T08:53:20Z"  # the same


class Provider:
    """Answers requests by scripts, or by one recording. Of the requests before it remembers only how often the very same one
    came, for the steps that fail at first, and what of their prompts stands in its `caches`, which no reply depends on but for
    its usage."""

    def __init__(
        self,
        *,
        scripts: Mapping[str, Script],
        recording: RecordedConversation | None = None,
        caches: bool = True,
        dialect: ServerDialect | None = None,
    ) -> None:
        self.scripts = scripts
        self.dialect = dialect  # whose rules its Chat Completions requests are judged by; None: the family's
        self.recording = recording
        self.playing: str | None = None  # the script for every request, whatever model it names
        self.caches = PromptCaches() if caches else None
        self._receipts: Counter[tuple[str, bytes]] = Counter()

    def forget(self) -> None:
        """Every step that fails at first does so again, and no prompt is kept."""
        self._receipts.clear()
        if self.caches is not None:
            self.caches.forget()

    def answer(
        self, route: Route, *, target: str, body: bytes, number: int, betas: str = ""
    ) -> tuple[Outgoing, Received]:
        """The reply to one request, and what is kept of both. `target` is the path with its query, `betas` what the header
        `anthropic-beta` says."""
        family = FAMILIES[route.family]
        kept = Received(
            number=number,
            family=route.family,
            path=target,
            model=route.model or "",
            streamed=route.streams,
            status=200,
            body=body,
            request=decoded(find_family(route.family), body=body, target=target),
            betas=betas,
        )
        try:
            raw = parsed(body, route=route, family=family)
            kept = replace(
                kept, model=route.model or model_of(raw), streamed=route.streams or table(raw).get("stream") is True
            )
            outgoing, kept = self._reply(family, raw=raw, kept=kept, target=target)
        except Rejected as rejected:
            kept = replace(kept, refused=rejected.message)
            outgoing = refusal(family, rejected=rejected)
        return outgoing, replace(kept, status=outgoing.status)

    def _reply(self, family: LabFamily, *, raw: Raw, kept: Received, target: str) -> tuple[Outgoing, Received]:
        if self.recording is not None:
            strict.check(family.name, body=raw, dialect=self.dialect)
            return self._replay(self.recording, conversation=family.read(table(raw)), kept=kept)
        script = self._script(kept, raw=raw)
        strict.check(family.name, body=raw, rules=rules_of(script, betas=kept.betas), dialect=self.dialect)
        judged = strict.judge_thinking(family.name, body=raw, binding=script.binds, betas=kept.betas)
        conversation = family.read(table(raw))
        use = self._cached(script, family=family, raw=raw, kept=kept)
        size = len(kept.body) - use.marked
        room = room_of(raw)
        strict.check_room(
            family.name,
            body=raw,
            model=kept.model,
            prompt_tokens=tokens(size),
            window_tokens=script.window_tokens,
            output_tokens=script.output_tokens,
        )
        # A writer is asked by agents, who put the time and new ids into each request: for it the words say which are the same.
        words = kept.body if script.writer is None else msgspec.json.encode(conversation.said)
        same = (script.name, hashlib.sha256(kept.path.encode() + words).digest())
        receipt = self._receipts[same]
        self._receipts[same] += 1
        asked = LabRequest(
            conversation=conversation,
            family=family,
            streamed=kept.streamed,
            room=room,
            prompt_bytes=size,
            receipt=receipt,
        )
        reply = next_reply(script, asked) if script.writer is None else writer_reply(script.writer, asked)
        reply = with_cache_use(reply, use=use)
        if self.dialect is not None and self.dialect.signs_calls and family.dialect_signature is not None:
            reply = with_signature(reply, sign_call=family.dialect_signature)
        request = kept.request or Request(model=kept.model, messages=(), stream=kept.streamed)
        if judged is not None:
            reply = bound_reply(reply, judged=judged)
        outgoing = encoded(find_family(family.name), reply=reply, request=request, streamed=kept.streamed)
        if judged is not None and judged.tells and family.judge.thinking is not None:
            outgoing = with_transformations(outgoing, thinking=family.judge.thinking, judged=judged)
        if kept.streamed and family.array_unless not in target and not reply.fault:
            outgoing = as_array(outgoing)
        fault = reply.fault
        return outgoing, replace(
            kept,
            turn=turns_in(conversation.said, script=script),
            step=reply.step,
            usage=reply.response.usage if fault is None else None,
            is_summary=reply.is_summary,
            fault=None if fault is None else fault.kind,
            fault_at=None if fault is None else fault.at,
            dropped=() if judged is None else tuple(one.path for one in judged.dropped),
        )

    def _cached(self, script: Script, *, family: LabFamily, raw: Raw, kept: Received) -> CacheUse:
        if self.caches is None or not script.caches:
            return CacheUse()
        least = family.least_cached_tokens if script.cache_least_tokens is None else script.cache_least_tokens
        return self.caches.ask(kept.number, family.prompt(raw), model=kept.model, least_tokens=least)

    def began(self, number: int, *, status: int) -> None:
        """The reply to that request has begun to leave: its prompt is kept from now on, unless it failed."""
        if self.caches is None:
            return
        if 200 <= status < 300:
            self.caches.begin(number)
        else:
            self.caches.drop(number)

    def _script(self, kept: Received, *, raw: Raw) -> Script:
        """The script that the model's name asks for; the judge looks first where there is none, as the APIs do."""
        script = self.scripts.get(self.playing or kept.model)
        if script is None or not script.speaks(kept.family):
            strict.check(kept.family, body=raw, dialect=self.dialect)
            raise FAMILIES[kept.family].judge.unknown_model.of(model=kept.model)
        return script

    def _replay(
        self, recording: RecordedConversation, *, conversation: Conversation, kept: Received
    ) -> tuple[Outgoing, Received]:
        if recording.family != kept.family:
            raise Rejected(f"the conversation `{recording.name}` was recorded from {recording.family}")
        try:
            number, exchange = find(recording, conversation=conversation, streamed=kept.streamed)
        except Unexpected as unexpected:
            raise Rejected(str(unexpected)) from None
        body = exchange.response.body.encode()
        pieces = tuple(body.splitlines(keepends=True)) if recording.streamed else (body,)
        content_type = exchange.response.headers.get("content-type") or (EVENT_STREAM if recording.streamed else JSON)
        outgoing = Outgoing(status=exchange.response.status, content_type=content_type, pieces=pieces)
        return outgoing, replace(kept, step=number + 1)


def rules_of(script: Script, *, betas: str = "") -> ModelRules:
    return ModelRules(
        prefill=script.prefill,
        signed=script.thinks,
        adaptive=bool(script.binds or script.generation),
        generation=script.generation,
        betas=betas,
    )


def parsed(body: bytes, *, route: Route, family: LabFamily) -> Raw:
    """The body, with the model that only the path names put in where the judge looks for it."""
    try:
        raw = parse(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise family.judge.no_json.of(error=error) from None
    if isinstance(raw, dict) and route.model is not None and not family.model_in_path:
        return {**raw, "model": route.model}
    return raw


def model_of(raw: Raw) -> str:
    """A gateway's `vendor/model` is the model."""
    return text(table(raw).get("model")).rpartition("/")[2]


def decoded(family: Family, *, body: bytes, target: str) -> Request | None:
    try:
        return family.decode_request(body, target)
    except BadRequest:
        return None


def bound_reply(reply: LabReply, *, judged: Judged) -> LabReply:
    """With its thoughts bound to what the request shows. The lab thinks first, so nothing of a response stands before them."""
    return with_parts(reply, [bound_part(part, judged=judged) for part in reply.response.message.parts])


def bound_part(part: Part, *, judged: Judged) -> Part:
    if not isinstance(part, Reasoning) or part.opaque is None:
        return part
    fields = table(parse(part.opaque.json))
    signed = {key: judged.sign(part.text) for key in ("signature", "encrypted_content") if key in fields}
    opaque = replace(part.opaque, json=dump({**fields, **signed}).decode())
    return replace(part, opaque=opaque)


def with_transformations(outgoing: Outgoing, *, thinking: ThinkingJudge, judged: Judged) -> Outgoing:
    """The report stands in the message that a stream begins with, or in the response that it ends with."""
    told = b'"input_transformations":' + dump([thinking.report(one) for one in judged.dropped]) + b","
    opened, marks = (b"{", (b"",)) if outgoing.content_type == JSON else (thinking.told_in, thinking.told_with)
    pieces = [
        piece.replace(opened, opened + told, 1) if any(mark in piece for mark in marks) else piece
        for piece in outgoing.pieces
    ]
    return replace(outgoing, pieces=tuple(pieces))


def encoded(family: Family, *, reply: LabReply, request: Request, streamed: bool) -> Outgoing:
    response, own = reply.response, FAMILIES[family.name]
    before: tuple[bytes, ...] | None = None
    if not streamed:
        outgoing = Outgoing(status=200, content_type=JSON, pieces=(family.encode_body(response, request),))
    elif reply.wire is not None:
        pieces = stream_of(reply.wire, family=own, response=response)
        outgoing = Outgoing(status=200, content_type=EVENT_STREAM, pieces=tuple(pieces))
    else:
        encoder = family.stream_encoder(request)
        frames = streamed_frames(own, response=response, piece=reply.piece)
        written = [encoder.encode(frame) for frame in frames]
        written.append(encoder.finish())
        if reply.fault is not None and reply.fault.at is not None:
            before = sent_until(reply.fault.at, frames=frames, written=written)
        if reply.ends_unsaid:
            written += stream_of("\n".join(own.unsaid_end(response)), family=own, response=response)
        outgoing = Outgoing(status=200, content_type=EVENT_STREAM, pieces=tuple([piece for piece in written if piece]))
    if reply.fault is None:
        return outgoing
    said = text_of(response.message) or called_with(response)
    return bend(outgoing, fault=reply.fault, family=own, streamed=streamed, text=said, before=before)


def called_with(response: Response) -> str:
    """The first text among the arguments of its calls."""
    found = [FIRST_TEXT.search(call.arguments or "") for call in calls_of(response.message)]
    return next((one[1] for one in found if one is not None), "")


def streamed_frames(family: LabFamily, *, response: Response, piece: int) -> list[Frame]:
    """With the prompt's tokens first and the rest at the end, where the family says them so."""
    frames = frames_of(response, piece=piece)
    if family.usage_first and response.usage is not None:
        frames.insert(1, UsageReported(replace(response.usage, output_tokens=1, reasoning_tokens=0)))
    return frames


def as_array(stream: Outgoing) -> Outgoing:
    """Google's stream without `alt=sse`: one JSON array, an element a chunk."""
    parser = SseParser(limits=Limits())
    events = [event for piece in stream.pieces for event in parser.feed(piece)] + parser.finish()
    pieces = [(b"[" if place == 0 else b",\r\n") + event.data for place, event in enumerate(events)]
    return replace(stream, content_type=JSON, pieces=(*pieces, b"]"))


def model_list(scripts: Mapping[str, Script]) -> bytes:
    """`GET /v1/models`: the fields of OpenAI's, Anthropic's and Google's lists in one, since all three may ask there."""
    listed = [
        {
            "id": name,
            "object": "model",
            "type": "model",
            "display_name": script.title,
            "created": CREATED,
            "created_at": CREATED_AT,
            "owned_by": "turnwise-lab",
        }
        for name, script in scripts.items()
    ]
    methods = ["generateContent", "streamGenerateContent"]
    google = [
        {"name": f"models/{name}", "displayName": script.title, "supportedGenerationMethods": methods}
        for name, script in scripts.items()
        if script.speaks(gemini.FAMILY.name)
    ]
    ends = {"first_id": listed[0]["id"], "last_id": listed[-1]["id"]} if listed else {}
    return dump({"object": "list", "data": listed, "has_more": False, **ends, "models": google})


def script_list(scripts: Mapping[str, Script]) -> bytes:
    """`GET /_lab/scripts`."""
    return dump({"scripts": list(scripts.values())})
