"""Every recorded stream through the relay: between equal families, to the clients of the three others, and cut anywhere.

The judges are the manifest of the recordings and the vendors' own clients. The recordings lie outside the repository; where
they are not, streams of our own stand in for them (`stand_ins.py`).
"""

import tomllib
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from gateway.official_clients import Heard, HeardCall, Place, ask, failed, given
from recordings import FAMILIES, Row, differences, of_family, profile_of, spoken
from turnwise.relay.client_exchange import ClientSide, EventReader, Relay, RelayEnd, RelayRules, UpstreamSide
from turnwise.rules.retries import NO_RETRY
from turnwise.testing.frames import byte_by_byte, random_splits
from turnwise.vocab import Fault, Message, Request, Text, ToolSpec
from turnwise.wire.family import family
from turnwise.wire.relay_facts import relay_facts
from whole_streams import read_stream

# A client warns of words in a response that its version does not know yet; it reads them all the same.
pytestmark = [pytest.mark.wide, pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")]

NAMES = sorted(set(FAMILIES.values()))
CLIENTS = [name for name in NAMES if relay_facts(name).has_door]
PARAMETERS = '{"type":"object","properties":{}}'
SAMPLE = 11  # every so manieth stream is fed byte by byte, of those up to so many bytes
SMALL_BYTES = 30_000
SPLITS = 5
MADE_ANEW = 30
LEAST_SAME = 1_289  # of 1,372; 22 more only lack an end mark or the last blank line

NAMED = tomllib.loads(Path(__file__).with_name("recorded_streams.toml").read_text(encoding="utf-8"))
ERRORS, UNSEEN, TRUER_ENDS, WRITTEN_ANEW, ACROSS = (
    frozenset(NAMED[name]) for name in ("errors", "unseen", "truer_ends", "written_anew", "across")
)


class Relayed(NamedTuple):
    out: bytes
    fault: Fault | None


def relayed(row: Row, *, client: str, pieces: Iterable[bytes] | None = None) -> Relayed:
    """What a client gets for the recorded bytes, if nothing is asked for again."""
    names = sorted({call["name"] for call in row.expected["tool_calls"] if call.get("name")})
    request = Request(
        model="m",
        messages=(Message("user", (Text("Please."),)),),
        tools=tuple([ToolSpec(name=name, parameters=PARAMETERS) for name in names]),
        stream=True,
    )
    upstream, profile = family(row.family), profile_of(row)
    relay = Relay(
        upstream=UpstreamSide(
            request=request, call=upstream.encode_request(request, profile), family=upstream, profile=profile
        ),
        client=ClientSide(request=request, family=family(client)),
        rules=RelayRules(continues="off", retries=NO_RETRY),
    )
    reader = relay.reader()
    assert isinstance(reader, EventReader)
    out: list[bytes] = []
    for piece in [row.path.read_bytes()] if pieces is None else pieces:
        if reader.early_words.take(piece):
            reader.hold_word(piece)
        else:
            reader.feed(piece)
        out.append(reader.take_out())
    response = reader.finish()
    out.append(reader.take_out())
    step = relay.ended(response, response.fault, waited_s=0, jitter=0.5)
    assert isinstance(step.next, RelayEnd)
    return Relayed(b"".join([*out, step.out]), step.next.fault)


def served(answer: Relayed, *, client: str) -> Place:
    """The answer as a client gets it: before its first word, an error is a status."""
    if answer.fault is None or answer.out:
        return given(answer.out)
    return failed(*family(client).encode_fault(answer.fault))


def misheard(row: Row, heard: Heard) -> str:
    """Where a client heard something else than the manifest expects; cut calls are told by the finish reason."""
    expected = row.expected
    text = (expected["text"] or "") + (expected.get("refusal") or "")
    if heard.text != text:
        return f"text {heard.text!r:.120}, expected {text!r:.120}"
    wanted = [HeardCall(call["name"], _value(call)) for call in expected["tool_calls"] if call["complete"]]
    got = [call for call in heard.calls if call in wanted]
    if got != wanted:
        return f"calls {heard.calls!r:.200}, expected {wanted!r:.200}"
    if len(heard.calls) > len(expected["tool_calls"]):
        return f"calls too many: {heard.calls!r:.200}"
    return ""


def _value(call: dict[str, object]) -> object:
    return {} if call["arguments"] is None else call["arguments"]


def judged(row: Row, *, client: str) -> str:
    """What is wrong with the answer for the official client; empty where nothing is."""
    answer = relayed(row, client=client)
    try:
        heard = ask(client, at=served(answer, client=client), model="m", streamed=True)
    except Exception as error:  # noqa: BLE001  # the clients raise what they like
        return f"{'told' if answer.fault else 'raised'}: {type(error).__name__}: {error!s:.200}"
    if answer.fault is not None:
        return "an error that the client does not notice"
    return misheard(row, heard)


@pytest.mark.promise("heal:every-case")
@pytest.mark.parametrize("name", CLIENTS)
def test_official_clients_see_the_expected_message(corpus: Path, name: str) -> None:
    """Also where they raise on the recorded bytes themselves."""
    found = {row.file: why for row in of_family(corpus, name) if (why := judged(row, client=name))}
    told = {file: why for file, why in found.items() if why.startswith("told: ")}
    files = {row.file for row in of_family(corpus, name)}
    assert set(told) == ERRORS & files
    unseen = {file: why for file, why in found.items() if file not in told}
    assert set(unseen) == UNSEEN & files, unseen


@pytest.mark.promise("heal:every-case")
@pytest.mark.parametrize("name", CLIENTS)
def test_decoders_see_the_expected_message(corpus: Path, name: str) -> None:
    """The whole manifest: text, reasoning, calls, ids and usage. Where the finish word differs, the provider's was untrue."""
    wrong: dict[str, list[str]] = {}
    for row in of_family(corpus, name):
        answer = relayed(row, client=name)
        if row.file in ERRORS:
            continue
        names = frozenset([call["name"] for call in row.expected["tool_calls"] if call.get("name")])
        got = read_stream([answer.out], family=family(name), profile=profile_of(row), tool_names=names)
        if found := [one for one in differences(row, got) if row.file not in TRUER_ENDS or "finish_reason" not in one]:
            wrong[row.file] = found
    assert wrong == {}


@pytest.mark.promise("heal:every-case")
@pytest.mark.parametrize(("name", "client"), [pair for pair in product(NAMES, CLIENTS) if pair[0] != pair[1]])
def test_clients_of_other_families_see_the_same(corpus: Path, name: str, client: str) -> None:
    """Text and calls, and no exception."""
    found = {row.file: why for row in of_family(corpus, name) if (why := judged(row, client=client))}
    unexpected = {file: why for file, why in found.items() if not why.startswith("told: ") and file not in ACROSS}
    assert unexpected == {}
    assert {file for file, why in found.items() if why.startswith("told: ")} <= ERRORS | ACROSS


@pytest.mark.promise("heal:transparent")
def test_healthy_streams_keep_their_bytes(corpus: Path, record_property: Callable[[str, object], None]) -> None:
    """All but those listed, each with its reason, are what came, byte for byte."""
    kinds: Counter[str] = Counter()
    changed: set[str] = set()
    for row in spoken(corpus):
        raw, answer = row.path.read_bytes(), relayed(row, client=row.family)
        kind = "same" if answer.out == raw else "completed" if answer.out.startswith(raw) else "written anew"
        if row.file in ERRORS:
            kind = "error"
        kinds[kind] += 1
        if kind == "written anew":
            changed.add(row.file)
    # Of our stand-ins ten are Gemini's arrays, and in twenty a call begins before the last piece of the one before it.
    made = {file for file in changed if "stand-in" in file}
    assert changed - made == WRITTEN_ANEW & {row.file for row in spoken(corpus)} and len(made) <= MADE_ANEW
    assert kinds["same"] >= LEAST_SAME
    record_property("compared", f"{kinds.total()} streams through the relay: {dict(kinds)}")


@pytest.mark.promise("heal:transparent")
@pytest.mark.parametrize("name", NAMES)
def test_where_the_network_cuts_does_not_show(corpus: Path, name: str) -> None:
    """A sample byte by byte and at random places: the client's bytes are the same."""
    for number, row in enumerate(of_family(corpus, name)):
        raw = row.path.read_bytes()
        if number % SAMPLE or len(raw) > SMALL_BYTES:
            continue
        client = CLIENTS[number // SAMPLE % len(CLIENTS)]
        whole = relayed(row, client=client)
        for pieces in (byte_by_byte(raw), *random_splits(raw, seed=number, count=SPLITS)):
            assert relayed(row, client=client, pieces=pieces) == whole, (row.file, client)
