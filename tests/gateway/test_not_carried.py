"""Fields that the upstream's API cannot take are told by name: in a header and in the log, never with a value."""

import logging

import msgspec
import pytest

from gateway.calling import answered, call_of, upstream_at
from turnwise.gateway.accounts import FIELDS, RequestLine
from turnwise.gateway.config import GatewayRoute
from turnwise.relay.terms import MORE, MOST_NAMES, UNNAMED, names_not_carried
from turnwise.vocab import Repair
from turnwise.wire.relay_facts import not_carried


@pytest.mark.promise("heal:told")
@pytest.mark.parametrize("stream", [True, False])
def test_dropped_fields_are_named_in_a_header_and_in_the_log(caplog: pytest.LogCaptureFixture, stream: bool) -> None:
    """A stream has the header, too: these are known before it begins."""
    caplog.set_level(logging.INFO, "turnwise")
    more = {"metadata": {"user_id": "a-secret-value"}, "top_k": 7, "stop_sequences": ["x"]}
    call = call_of("anthropic_messages", "plain-answer", stream=stream, **more)
    found = answered(call, GatewayRoute(upstream=upstream_at("openai_chat")))
    assert (found.outlet.status, found.outlet.headers["turnwise-not-carried"]) == (200, "metadata, top_k")
    (record,) = [record for record in caplog.records if hasattr(record, FIELDS)]
    line: RequestLine = getattr(record, FIELDS)
    assert line.not_carried == ("metadata", "top_k")
    assert msgspec.json.decode(msgspec.json.encode(line))["not_carried"] == ["metadata", "top_k"]
    assert "not carried: metadata top_k" in record.getMessage()
    assert "a-secret-value" not in caplog.text + str(found.outlet.headers)


def test_a_request_that_goes_up_whole_has_no_such_header() -> None:
    """Between equal families every field goes up."""
    call = call_of("openai_chat", "plain-answer", stream=False, metadata={"a": "b"})
    assert (
        "turnwise-not-carried" not in answered(call, GatewayRoute(upstream=upstream_at("openai_chat"))).outlet.headers
    )


def test_names_in_a_header_are_plain_bounded_and_few() -> None:
    """A client may put anything into a key: a line break, a sentence, a thousand of them."""
    odd = ["a\r\nset-cookie: x", "two words", "é", "x" * 65, "messages[-1]", "generationConfig.topK", "a", "a"]
    told = [not_carried(name, because="no") for name in odd] + [Repair("output_capped", "`max_tokens`", "")]
    assert names_not_carried(told) == (UNNAMED, "messages[-1]", "generationConfig.topK", "a")
    many = names_not_carried([not_carried(f"f{number}", because="no") for number in range(1000)])
    assert (len(many), many[-1]) == (MOST_NAMES + 1, MORE)


def test_a_count_names_what_it_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """As the request itself would be sent, it is counted."""
    call = call_of("anthropic_messages", "plain-answer", stream=False, metadata={"user_id": "a"}, top_k=7)
    count = msgspec.structs.replace(call, path="/v1/messages/count_tokens", kind="count")
    found = answered(count, GatewayRoute(upstream=upstream_at("gemini")))
    assert (found.outlet.status, found.outlet.headers["turnwise-not-carried"]) == (200, "metadata")
