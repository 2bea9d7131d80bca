"""Names of fields that are known to carry no key. Every other field of a request may carry one, today or tomorrow."""

HEADERS_UP = frozenset({"anthropic-beta", "anthropic-version", "openai-beta"})
"""What the gateway sends upstream. What names an account (`openai-organization`, `openai-project`) does not go: the key is the
gateway's."""
QUERY_UP = frozenset({"alt", "api-version", "beta"})
"""`alt=sse` asks Gemini for a stream, `api-version` is Azure's, `beta=true` comes from Claude Code."""
KEYLESS_HEADERS = HEADERS_UP | {"content-type", "user-agent"}
"""Those, and the headers that turnwise writes itself."""
