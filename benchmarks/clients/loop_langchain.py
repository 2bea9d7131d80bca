"""LangChain: `create_agent`, its model streaming."""

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from looping import INSTRUCTIONS, PROMPT, Archive, Case, Task, measure, run


async def main(given: Task) -> None:
    async def loop(case: Case, url: str, archive: Archive) -> str:
        @tool
        async def look(key: str) -> str:
            """Look something up."""
            return await archive.look(key)

        model = ChatOpenAI(model=case["model"], base_url=url + "/v1", max_retries=0, streaming=True)
        agent = create_agent(model, tools=[look], system_prompt=INSTRUCTIONS)
        asked = {"messages": [{"role": "user", "content": PROMPT}]}
        result = await agent.ainvoke(asked, config={"recursion_limit": case["steps"] * 2 + 20})
        return str(result["messages"][-1].content)

    await measure(given, loop=loop, distribution="langchain")


run(main)
