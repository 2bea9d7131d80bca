"""Editors (ACP), and turnwise as an MCP server."""
