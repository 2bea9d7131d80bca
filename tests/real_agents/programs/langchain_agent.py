"""An agent of LangChain with a tool that writes files here: `python PROGRAM BASE_URL MODEL PROMPT`."""

import sys
from pathlib import Path

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def write_file(path: str, content: str) -> str:
    """Write a file."""
    Path(path).write_text(content, encoding="utf-8", newline="")
    return f"{path} is written"


base_url, model, prompt = sys.argv[1:]
agent = create_agent(ChatOpenAI(model=model, base_url=base_url, api_key="none", streaming=True), tools=[write_file])
ended = agent.invoke({"messages": [{"role": "user", "content": prompt}]})
sys.stdout.write(f"{ended['messages'][-1].text}\n")
