"""The library that users import: agents, runs, tools and results."""
