"""Faults of upstreams as clients are told them: without the upstream's address, which is the operator's alone, and without
web pages, which a client may show."""

import re
import urllib.parse
from collections.abc import Mapping

import msgspec

from turnwise.vocab import Fault, FaultKind

UPSTREAM = "the upstream"
_ASKED = re.compile(r"\s*\(asked for `.*\)\Z", re.DOTALL)
_PROXY = re.compile(r"\s*\(through the proxy `[^`]*`\)\Z")
_OPENS = r"(?:<|\\+u003c|&lt;)"
# A tag of a page, also as a JSON text or another page has it, or any tag that does something. Tags that models write
# (`<tool_call>`) and placeholders of messages (`<name>`, `<data>`) are none of them.
_PAGE = re.compile(
    rf"{_OPENS}(?:!doctype|!--|\?xml|/?(?:html|head|body|title|script|noscript|style|meta|link|base|center|h[1-6]|hr|br|p|div|span"
    r"|pre|code|a|b|i|u|s|em|strong|big|small|font|sub|sup|blockquote|ul|ol|li|dl|dt|dd|table|t[rdh]|thead|tbody|tfoot|caption"
    r"|form|fieldset|input|button|select|textarea|img|picture|figure|svg|math|canvas|i?frame|frameset|noframes|object|applet|embed"
    r"|video|audio|header|footer|nav|main|section|article|aside|details|dialog|marquee|template)(?=[\s/>\\&]|$)"
    r"|[a-z][^<>]{0,400}[\s/\"']on[a-z]{3,30}\s*=)",
    re.IGNORECASE,
)
PAGE = "a web page"
_LOOKED_AT = 4096  # bytes of a body
_OWN_WORDS = frozenset({FaultKind.UNREACHABLE, FaultKind.TIMEOUT, FaultKind.DISCONNECTED, FaultKind.PROTOCOL})


class ToldFault(msgspec.Struct, frozen=True, kw_only=True):
    """`fault` for the client. `log` is what it does not say, empty if that is nothing; no provider wrote it."""

    fault: Fault
    log: str = ""


def without_address(fault: Fault, *, base_url: str) -> ToldFault:
    """The fault without the address of the upstream at `base_url`, without advice that only its operator can follow, and without
    a web page."""
    if (page := _PAGE.search(fault.message)) is not None:
        asked = _ASKED.search(fault.message)
        before = fault.message[: page.start()]
        fault = _saying(
            fault, f"{before}{PAGE}{asked[0] if asked is not None and asked.start() > page.start() else ''}"
        )
    if (proxy := _PROXY.search(fault.message)) is not None:
        told = without_address(_saying(fault, fault.message[: proxy.start()]), base_url=base_url)
        return ToldFault(fault=told.fault, log=f"{told.log}{proxy[0]}".strip())
    if fault.status is not None and 300 <= fault.status < 400:
        return ToldFault(
            fault=_saying(fault, f"{UPSTREAM} redirects; the log of the gateway says where to"), log=fault.message
        )
    if (asked := _ASKED.search(fault.message)) is not None:
        said = _hidden(fault.message[: asked.start()], base_url=base_url)
        return ToldFault(
            fault=_saying(fault, said or f"{UPSTREAM} has no such endpoint or model"), log=asked[0].strip(" ()")
        )
    said = _hidden(fault.message, base_url=base_url)
    if said == fault.message:
        return ToldFault(fault=fault)
    is_own = fault.status is None and fault.kind in _OWN_WORDS
    return ToldFault(fault=_saying(fault, said), log=fault.message if is_own else f"it named its address, {base_url}")


def is_page(headers: Mapping[str, str], body: bytes) -> bool:
    """Whether an answer is a web page, whatever its status is."""
    start = body[:_LOOKED_AT].lstrip()
    if start[:1] in (b"{", b"["):
        return False
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind in ("text/html", "application/xhtml+xml") or _PAGE.search(start.decode("latin-1")) is not None


def _saying(fault: Fault, message: str) -> Fault:
    return msgspec.structs.replace(fault, message=message)


def _hidden(text: str, *, base_url: str) -> str:
    parts = urllib.parse.urlsplit(base_url)
    host = parts.hostname or ""
    shown = f"[{host}]" if ":" in host else host
    plain = [base_url, f"{parts.scheme}://{parts.netloc}", parts.netloc] + (
        [shown] if "." in host or ":" in host else []
    )
    for form in [*[f"`{each}`" for each in (*plain, shown, host)], *plain]:
        if form.strip("`"):
            text = re.sub(rf"(?<![\w.-]){re.escape(form)}(?![\w-])", UPSTREAM, text, flags=re.IGNORECASE)
    return text
