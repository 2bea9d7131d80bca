"""The face for editors: `turnwise acp` speaks the Agent Client Protocol. The command line imports it on use."""
