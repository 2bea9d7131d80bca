"""What a client reads of an upstream that ends in the middle of an event: the whole answer, or one error, and never a fragment.

Two clients judge it. One reads as the standard says (WHATWG HTML, "Server-sent events", section 9.2.6): it drops what no blank
line ends. The other splits at line ends and takes each `data:` line for an event, as many hand-written clients do.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gateway.relayed import FAMILIES, ask, profile_of
from gateway.relayed import relayed as through_lab
from recordings import spoken
from tables import each
from turnwise.relay.client_exchange import ClientSide, Relay, RelayEnd, RelayRules, Send, UpstreamSide
from turnwise.relay.event_reader import ArrayAnswer, EventReader
from turnwise.rules.retries import RetryPolicy
from turnwise.vocab import Fault, FaultKind, FinishReason, Response, calls_of, refusal_of, text_of
from turnwise.wire.family import family
from whole_streams import read_stream

RESET = Fault(kind=FaultKind.DISCONNECTED, message="connection reset", status=502)
ONCE = RetryPolicy(attempts=1)
RULES = {
    "default": RelayRules(),
    "retry = 0": RelayRules(retries=ONCE),
    "retry = 0, continue = false": RelayRules(retries=ONCE, continues="off"),
    "heal = false": RelayRules(retries=ONCE, continues="off", heals=False),
}
SCRIPTS = ("plain-answer", "parallel-calls")
MOST_REQUESTS = 12


@cache
def whole(name: str, script: str) -> bytes:
    """A healthy stream of the family, as its own client gets it from the lab."""
    return through_lab(ask(script), upstream=name, client=name).body


def last_event(stream: bytes) -> int:
    """Where it begins."""
    return [0, *[found.end() for found in re.finditer(rb"\n\n|\r\n\r\n", stream)]][-2]


def relayed(
    stream: bytes, *, upstream: str, client: str, rules: RelayRules, fault: Fault | None, again: bytes
) -> bytes:
    """What the client gets where the upstream sends this, and then, if it is asked once more, `again`."""
    request = ask("m")
    there, profile = family(upstream), profile_of(upstream)
    relay = Relay(
        upstream=UpstreamSide(
            request=request, call=there.encode_request(request, profile), family=there, profile=profile
        ),
        client=ClientSide(request=request, family=family(client)),
        rules=rules,
    )
    out: list[bytes] = []
    following: Send | RelayEnd = relay.first()
    for data, broke in [(stream, fault), *[(again, None)] * MOST_REQUESTS]:
        reader = relay.reader()
        for at in (0, len(data) // 2):
            reader.feed(data[at : at + len(data) // 2 + 1] if at else data[: len(data) // 2])
        rest = data[len(data) // 2 + len(data) // 2 + 1 :]
        if rest:
            reader.feed(rest)
        response = reader.finish()
        out.append(reader.take_out() if isinstance(reader, EventReader) else b"")
        step = relay.ended(response, broke or response.fault, waited_s=0, jitter=0.5)
        out.append(step.out)
        following = step.next
        if isinstance(following, RelayEnd):
            if following.fault is not None and not b"".join(out):
                return b""  # the client gets a status
            if following.fault is not None:
                out.append(relay.error(following.fault))
            return b"".join(out)
    raise AssertionError("it does not end")


class Event(NamedTuple):
    name: str
    data: str


def strictly(stream: bytes) -> list[Event]:
    """The events as the standard says."""
    events: list[Event] = []
    name, data = "", list[str]()
    *lines, _ = re.split(r"\r\n|\n|\r", stream.decode())
    for line in lines:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                events.append(Event(name, "\n".join(data)))
            name, data = "", []
        elif field == "data":
            data.append(value)
        elif field == "event":
            name = value
        else:
            assert line.startswith(":") or field in ("id", "retry"), f"no field: {line[:80]}"
    return events


def leniently(stream: bytes) -> list[Event]:
    """Each line of data is an event, whether it has ended or not."""
    lines = [line.rstrip("\r") for line in stream.decode().split("\n")]
    return [Event("", line[5:].strip()) for line in lines if line.startswith("data:")]


def as_array(stream: bytes) -> list[Event]:
    """What a client of Gemini's reads that asked for one array."""
    array = ArrayAnswer()
    return [Event("", json.dumps(element)) for element in json.loads(array.take(stream) + array.end())]


def is_error(event: dict[str, Any]) -> bool:
    """Responses says behind it that the response has failed, as its API does."""
    return bool(event.get("error")) or event.get("type") == "error"


def said(response: Response) -> object:
    calls = [(call.name, json.loads(call.arguments or "{}")) for call in calls_of(response.message)]
    return text_of(response.message), refusal_of(response.message), calls, response.finish


def judged(events: Sequence[Event], *, client: str, expected: object) -> str:
    """What is wrong; empty for the complete answer, or one error at the end."""
    if not events:
        return ""  # a status told the error
    errors = 0
    for event in events:
        if event.data == "[DONE]":
            continue
        try:
            found = json.loads(event.data)
        except ValueError:
            return f"no JSON: {event.data[:120]}"
        errors += is_error(found)
    if errors:
        return "" if errors == 1 else f"{errors} errors"
    canonical = [f"event: {event.name}\n" * bool(event.name) + f"data: {event.data}\n\n" for event in events]
    got = read_stream(["".join(canonical).encode()], family=family(client), profile=profile_of(client))
    if got.finish is FinishReason.LENGTH and not calls_of(got.message):
        return ""  # a text that nobody could go on with is told as cut
    return "" if said(got) == expected and not got.repairs else f"{said(got)!r:.200} {got.repairs}"


def found_open(stream: bytes) -> str:
    """Where nothing is healed, the events are as good as the provider's, but they are events."""
    if stream and not stream.endswith((b"\n\n", b"\r\n\r\n")):
        return "an event stands open"
    errors = 0
    for event in leniently(stream):
        if event.data != "[DONE]":
            errors += is_error(json.loads(event.data))
    return "" if errors < 2 else f"{errors} errors"


def found_wrong(stream: bytes, *, upstream: str, client: str, rules: RelayRules, again: bytes, expected: object) -> str:
    readers: list[Callable[[bytes], list[Event]]] = [strictly, leniently]
    if client == "gemini":
        readers.append(as_array)
    for fault in (None, RESET):
        got = relayed(stream, upstream=upstream, client=client, rules=rules, fault=fault, again=again)
        if why := found_open(got):
            return why
        for reader in readers if rules.heals else ():
            if why := judged(reader(got), client=client, expected=expected):
                return f"{reader.__name__}, {'reset' if fault else 'closed'}: {why}\n{stream[-200:]!r}\n{got[-400:]!r}"
    return ""


def places(stream: bytes, *, step: int) -> Iterator[int]:
    """Each byte of the last event at which it may be cut, or some of them; all around its end marks."""
    begins, end = last_event(stream), len(stream)
    yield from [at for at in range(begins, end + 1) if (at - begins) % step == 0 or at - begins < 8 or end - at < 6]


@pytest.mark.costly
@pytest.mark.promise("heal:every-case")
@each("rules", RULES)
@each("name", FAMILIES, meeting="each")
def test_an_answer_cut_at_any_byte_of_its_last_event_is_whole_or_one_error(name: str, rules: str) -> None:
    """At every byte without a second request, at some with one. The mark that ends a stream may be an event of its own: what was
    said stands in the one before it then, so that is cut as well."""
    step = 1 if rules == "retry = 0" else 25
    if name == "openai_responses":  # its last event says all once more
        step = max(5, step)
    for script in SCRIPTS:
        stream = whole(name, script).replace(b"\r\n", b"\n")
        expected = said(read_stream([stream], family=family(name), profile=profile_of(name)))
        returns = stream.replace(b"\n", b"\r\n")
        cuts = [(stream, step), (returns, 50)]
        if name in ("openai_chat", "anthropic_messages"):
            cuts.append((stream[: last_event(stream)], 9))
        for cut, apart in cuts:
            for at in places(cut, step=apart):
                assert not found_wrong(
                    cut[:at], upstream=name, client=name, rules=RULES[rules], again=stream, expected=expected
                )


@pytest.mark.costly
@pytest.mark.promise("heal:every-case")
@each("rules", ["default", "retry = 0"])
@each("client", FAMILIES)
@each("upstream", FAMILIES, meeting="each")
def test_so_is_one_for_a_client_of_another_family(upstream: str, client: str, rules: str) -> None:
    for script in SCRIPTS:
        stream = whole(upstream, script)
        got = relayed(stream, upstream=upstream, client=client, rules=RULES[rules], fault=None, again=stream)
        expected = said(read_stream([got], family=family(client), profile=profile_of(client)))
        for at in places(stream, step=40):
            assert not found_wrong(
                stream[:at], upstream=upstream, client=client, rules=RULES[rules], again=stream, expected=expected
            )


@pytest.mark.costly
@pytest.mark.promise("heal:every-case")
@each("rules", ["default", "retry = 0", "heal = false"])
@each("name", FAMILIES, meeting="each")
def test_recorded_streams_without_their_last_line_ends_leave_no_event_open(corpus: Path, name: str, rules: str) -> None:
    """Whatever the stream was, it is the same as with its line ends, or one error."""
    for row in spoken(corpus):
        if row.family != name:
            continue
        stream = row.path.read_bytes().rstrip(b"\r\n")
        for fault in (None, RESET):
            got = relayed(stream, upstream=name, client=name, rules=RULES[rules], fault=fault, again=b"")
            assert not got or got.endswith((b"\n\n", b"\r\n\r\n")), row.file
            if rules != "heal = false":
                for event in leniently(got):
                    assert event.data == "[DONE]" or json.loads(event.data), row.file
