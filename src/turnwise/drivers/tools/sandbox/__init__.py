"""Running commands apart from the rest: in bubblewrap, else under Landlock with a seccomp filter, else so and saying so."""

from turnwise.drivers.tools.sandbox.choosing import Sandbox, find_sandbox
from turnwise.drivers.tools.sandbox.environment import command_environment, is_secret
from turnwise.drivers.tools.sandbox.git import CannotGuard, GitGuard, RestoredFiles
from turnwise.drivers.tools.sandbox.kinds import SandboxKind, Wrapped
from turnwise.drivers.tools.sandbox.scratch import Scratch

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
