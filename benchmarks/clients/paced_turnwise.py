"""turnwise: a whole turn each, every frame through the public `async for`."""

from pacing import Take, Task, measure, run

from turnwise import Agent, FrameSeen, Model, RunFinished
from turnwise.endpoints.aiohttp_transport import AiohttpTransport
from turnwise.vocab import StopReason, TextDelta


async def main(given: Task) -> None:
    async with AiohttpTransport() as transport:

        async def read(model: str, take: Take) -> None:
            agent = Agent(
                Model(f"openai_chat:{model}", base_url=f"{given['url']}/v1", api_key="nothing", transport=transport)
            )
            async for event in agent.stream("Go on."):
                match event:
                    case FrameSeen(frame=TextDelta(text=text)):
                        take(text)
                    case RunFinished(result=result):
                        assert result.stop_reason is StopReason.ANSWERED, result.fault

        await measure(read, given=given, distribution="turnwise")


run(main)
