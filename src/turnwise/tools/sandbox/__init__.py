"""Run commands isolated: in bubblewrap, else under Landlock with a seccomp filter, else without a sandbox and with a warning."""

from turnwise.tools.sandbox.environment import Scratch, command_environment, is_secret
from turnwise.tools.sandbox.git import CannotGuard, GitGuard, RestoredFiles
from turnwise.tools.sandbox.sandbox_choice import Sandbox, find_sandbox
from turnwise.tools.sandbox.sandbox_types import SandboxKind, Wrapped

__all__ = [
    "CannotGuard",
    "GitGuard",
    "RestoredFiles",
    "Sandbox",
    "SandboxKind",
    "Scratch",
    "Wrapped",
    "command_environment",
    "find_sandbox",
    "is_secret",
]
