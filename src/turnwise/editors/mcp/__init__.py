"""`turnwise mcp serve`: two tools for MCP clients, `run` and `decode`."""
