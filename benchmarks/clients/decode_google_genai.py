"""The google-genai package: `generate_content_stream`."""

from google import genai
from google.genai import types
from timing import PARAMETERS, PROMPT, TOOL, Case, Task, measure, run

WRITE = types.FunctionDeclaration(name=TOOL, description="Write a file.", parameters_json_schema=PARAMETERS)


async def main(given: Task) -> None:
    client = genai.Client(api_key="nothing", http_options=types.HttpOptions(base_url=given["url"]))
    config = types.GenerateContentConfig(
        tools=[types.Tool(function_declarations=[WRITE])],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )

    async def read(case: Case) -> int:
        seen = 0
        async for chunk in await client.aio.models.generate_content_stream(
            model=case["model"], contents=PROMPT, config=config
        ):
            for part in chunk.candidates[0].content.parts or ():
                if part.function_call is not None:
                    seen += sum(len(one.string_value or "") for one in part.function_call.partial_args or ())
                elif part.text and bool(part.thought) == (case["kind"] == "reasoning"):
                    seen += len(part.text)
        return seen

    await measure(given, read=read, distribution="google-genai")


run(main)
