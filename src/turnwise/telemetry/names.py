"""The names that spans and metrics have: OpenTelemetry's for generative AI, and turnwise's own beside them.

The conventions' package is not needed to run: the API is all that the extra installs. A test compares every name with
`opentelemetry-semantic-conventions` (docs/telemetry.md says which version).
"""

from collections.abc import Mapping, Sequence
from typing import Final

SpanFacts = Mapping[str, str | bool | int | float | Sequence[str]]
"""What a span says: names of this module with their values."""

# Operations (`gen_ai.operation.name`), which begin the names of the spans.
INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
CONVERSATION: Final = "gen_ai.conversation.id"
AGENT_NAME: Final = "gen_ai.agent.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
REQUEST_TOP_P: Final = "gen_ai.request.top_p"
REQUEST_SEED: Final = "gen_ai.request.seed"
REQUEST_STOP: Final = "gen_ai.request.stop_sequences"
OUTPUT_TYPE: Final = "gen_ai.output.type"
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOKEN_TYPE: Final = "gen_ai.token.type"
ERROR_TYPE: Final = "error.type"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
STATUS_CODE: Final = "http.response.status_code"

# Contents: only where they are asked for.
SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"

# Metrics.
TOKEN_USAGE: Final = "gen_ai.client.token.usage"
OPERATION_DURATION: Final = "gen_ai.client.operation.duration"
FIRST_CHUNK_DURATION: Final = "gen_ai.client.operation.time_to_first_chunk"

# turnwise's own, on the span of a run.
RUN_ID: Final = "turnwise.run.id"
RUN_PATH: Final = "turnwise.run.path"
RUN_RESUMED: Final = "turnwise.run.resumed"
STOP_REASON: Final = "turnwise.run.stop_reason"
COMPLETE: Final = "turnwise.run.complete"
STEPS: Final = "turnwise.run.steps"
REQUESTS: Final = "turnwise.run.requests"
SUBAGENTS: Final = "turnwise.run.subagents"
# On the span of a request.
PURPOSE: Final = "turnwise.request.purpose"
RETRY_OF: Final = "turnwise.request.retry_of"
NUMBER: Final = "turnwise.request.number"
STEP: Final = "turnwise.request.step"
SENT: Final = "turnwise.request.sent"
PROVIDER_FINISH: Final = "turnwise.response.provider_finish"
CACHE_MISSED_TOKENS: Final = "turnwise.usage.cache_missed_tokens"
# On both.
COST_USD: Final = "turnwise.cost.usd"
COST_UNKNOWN: Final = "turnwise.cost.unpriced_requests"
COST_AT_LEAST: Final = "turnwise.cost.partly_priced_requests"
REPAIRS: Final = "turnwise.repairs"
REPAIR_KINDS: Final = "turnwise.repair.kinds"
# An event on the span of a gateway's request, and what it says.
REPAIRED: Final = "turnwise.repaired"
REPAIR_KIND: Final = "turnwise.repair.kind"
# On a link, and on the event that tells of a call without a span of its own.
LINK: Final = "turnwise.link"
CALL_NOT_RUN: Final = "turnwise.call_not_run"

CANCELLED: Final = "cancelled"
TOOL_ERROR: Final = "tool_error"

# The conventions' word for a provider, where turnwise's is another one.
PROVIDERS: Final = {
    "openai-chat": "openai",
    "openai_chat": "openai",
    "openai_responses": "openai",
    "azure": "azure.ai.openai",
    "azure-responses": "azure.ai.openai",
    "anthropic_messages": "anthropic",
    "bedrock-anthropic": "aws.bedrock",
    "bedrock-mantle": "aws.bedrock",
    "google": "gcp.gemini",
    "gemini": "gcp.gemini",
    "gemini-openai": "gcp.gemini",
    "vertex-gemini": "gcp.vertex_ai",
    "vertex-anthropic": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "xai": "x_ai",
    "xai-responses": "x_ai",
}
