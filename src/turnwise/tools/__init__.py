"""The hands of a model: running its calls, the tools of a folder, facts of calls, and the sandbox."""
