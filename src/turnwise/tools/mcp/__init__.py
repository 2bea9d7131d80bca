"""Talking to MCP servers: their processes, their connections, what they offer and what they answer.

Everything that a server sends is a stranger's: it is bounded, and it is told to the model as data. What imports the package
`mcp` is imported when the first server starts; it needs `turnwise[mcp]`.
"""
