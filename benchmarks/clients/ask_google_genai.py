"""The google-genai package: `generate_content_stream` with the history as its own types."""

import json
from collections.abc import Awaitable, Callable

from asking import (
    DESCRIPTION,
    FIRST,
    INSTRUCTIONS,
    PARAMETERS,
    PROMPT,
    RESULT,
    SUMMARY,
    TOOL,
    Case,
    Task,
    measure,
    run,
    steps_of,
)
from google import genai
from google.genai.types import (
    AutomaticFunctionCallingConfig,
    Content,
    FunctionCall,
    FunctionDeclaration,
    FunctionResponse,
    GenerateContentConfig,
    HttpOptions,
    Part,
    Tool,
)


def history_of(case: Case) -> list[Content]:
    found = [Content(role="user", parts=[Part(text=FIRST)])]
    for id, arguments in steps_of(case):
        call = FunctionCall(id=id, name=TOOL, args=json.loads(arguments))
        found.append(Content(role="model", parts=[Part(function_call=call)]))
        answer = FunctionResponse(id=id, name=TOOL, response={"output": RESULT})
        found.append(Content(role="user", parts=[Part(function_response=answer)]))
    found.append(Content(role="model", parts=[Part(text=SUMMARY)]))
    return [*found, Content(role="user", parts=[Part(text=PROMPT)])]


async def main(given: Task) -> None:
    client = genai.Client(api_key="nothing", http_options=HttpOptions(base_url=given["url"]))
    look = FunctionDeclaration(name=TOOL, description=DESCRIPTION, parameters_json_schema=PARAMETERS)
    config = GenerateContentConfig(
        system_instruction=INSTRUCTIONS,
        tools=[Tool(function_declarations=[look])],
        automatic_function_calling=AutomaticFunctionCallingConfig(disable=True),
    )

    def prepare(case: Case) -> Callable[[], Awaitable[str]]:
        contents = history_of(case)

        async def ask() -> str:
            stream = await client.aio.models.generate_content_stream(
                model=case["model"], contents=contents, config=config
            )
            return "".join([chunk.text or "" async for chunk in stream])

        return ask

    await measure(given, prepare=prepare, distribution="google-genai")


run(main)
