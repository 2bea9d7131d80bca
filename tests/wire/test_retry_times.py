"""When to ask again, in all the forms that providers say it, read by every family alike."""

import pytest

from tables import each
from turnwise.wire.family import family
from turnwise.wire.faults import date_s

FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
BODY = b'{"error":{"message":"no","type":"rate_limit_error","code":429,"status":"RESOURCE_EXHAUSTED"}}'
DATE = "Wed, 21 Oct 2026 07:28:00 GMT"


@pytest.mark.promise("wait:retry")
@each("name", FAMILIES)
@each(
    ("headers", "after_s", "at_s", "should"),
    [
        ({"retry-after": "7"}, 7.0, None, None),
        ({"retry-after": " 1.5 "}, 1.5, None, None),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25, None, None),
        ({"retry-after": DATE}, None, 1792567680.0, None),
        ({"x-should-retry": "false"}, None, None, False),
        ({"x-should-retry": "true", "retry-after": "1"}, 1.0, None, True),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, 360.0, None, None),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1h0m2.5s"}, 3602.5, None, None),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "12ms"}, 0.012, None, None),
        ({"x-ratelimit-remaining-requests": "3", "x-ratelimit-reset-requests": "12ms"}, None, None, None),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "soon"}, None, None, None),
        (
            {
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2026-10-21T07:28:00Z",
            },
            None,
            1792567680.0,
            None,
        ),
    ],
)
def test_headers(
    name: str, headers: dict[str, str], after_s: float | None, at_s: float | None, should: bool | None
) -> None:
    """Seconds, a date, or a plain word; what has not run out is not waited for."""
    fault = family(name).decode_fault(429, headers, BODY)
    assert (fault.retry_after_s, fault.retry_at_s, fault.should_retry) == (after_s, at_s, should)


@each(
    ("text", "seconds"),
    [
        (DATE, 1792567680.0),
        ("Wednesday, 21-Oct-26 07:28:00 GMT", 1792567680.0),
        ("2026-10-21T07:28:00Z", 1792567680.0),
        ("2026-10-21T09:28:00.5+02:00", 1792567680.5),
        ("2026-10-21T01:58:00-05:30", 1792567680.0),
        ("tomorrow", None),
        ("", None),
        ("2026-99-99T99:99:99Z", None),
        ("9" * 400, None),
    ],
)
def test_dates(text: str, seconds: float | None) -> None:
    """RFC 9110 and RFC 3339; what is neither is no date, and nothing raises."""
    assert date_s(text) == seconds
