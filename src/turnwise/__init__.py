"""turnwise: the tool loop of LLM agents."""

from turnwise._version import __version__ as __version__
