"""pydantic-ai below its agent: `model_request_stream`, every event of it."""

from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    ModelRequest,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.tools import ToolDefinition
from timing import PARAMETERS, PROMPT, TOOL, Case, Task, measure, run

OFFERED = ModelRequestParameters(
    function_tools=[ToolDefinition(name=TOOL, description="Write a file.", parameters_json_schema=PARAMETERS)]
)


def model_of(given: Task, name: str) -> Model:
    match given["family"]:
        case "openai_chat" | "openai_responses" as family:
            from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
            from pydantic_ai.providers.openai import OpenAIProvider

            of = OpenAIChatModel if family == "openai_chat" else OpenAIResponsesModel
            return of(name, provider=OpenAIProvider(base_url=given["url"] + "/v1", api_key="nothing"))
        case "anthropic_messages":
            from pydantic_ai.models.anthropic import AnthropicModel
            from pydantic_ai.providers.anthropic import AnthropicProvider

            return AnthropicModel(name, provider=AnthropicProvider(base_url=given["url"], api_key="nothing"))
        case _:
            from pydantic_ai.models.google import GoogleModel
            from pydantic_ai.providers.google import GoogleProvider

            return GoogleModel(name, provider=GoogleProvider(base_url=given["url"], api_key="nothing"))


def length(event: object, kind: str) -> int:
    match event:
        case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            return len(text) if kind == "text" else 0
        case (
            PartStartEvent(part=ThinkingPart(content=text))
            | PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text))
        ):
            return len(text or "") if kind == "reasoning" else 0
        case (
            PartStartEvent(part=ToolCallPart(args=str(text)))
            | PartDeltaEvent(delta=ToolCallPartDelta(args_delta=str(text)))
        ):
            return len(text)
        case _:
            return 0


async def main(given: Task) -> None:
    models: dict[str, Model] = {}

    async def read(case: Case) -> int:
        name = case["model"]
        if name not in models:
            models[name] = model_of(given, name)
        asked = [ModelRequest.user_text_prompt(PROMPT)]
        async with model_request_stream(models[name], asked, model_request_parameters=OFFERED) as stream:
            return sum([length(event, case["kind"]) async for event in stream])

    await measure(given, read=read, distribution="pydantic-ai-slim")


run(main)
