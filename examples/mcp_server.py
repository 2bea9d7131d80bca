"""Give an agent the tools of an MCP server, here an object in this process; `command=` and `url=` reach other servers."""

from mcp.server.mcpserver import MCPServer

from models import says
from turnwise import Agent, McpServer, Policy
from turnwise.testing import call
from turnwise.vocab import Text, ToolResult

shop = MCPServer("shop", log_level="WARNING")  # its own logging setup would show each run


@shop.tool()
def price_of(article: str) -> str:
    """Say what an article costs."""
    return f"{article}: 12 EUR"


agent = Agent(
    says(call("shop__price_of", article="tea"), "Tea costs 12 EUR."),
    tools=[McpServer("shop", server=shop, effects={"price_of": "read"})],  # its own word for that does not count
    policy=Policy(),
)
result = agent.run_sync("What does tea cost?")
for message in result.new_messages:
    for part in message.parts:
        if isinstance(part, ToolResult):
            print([one.text for one in part.content if isinstance(one, Text)])
print(result.text)
