"""Running commands apart from the rest: in bubblewrap, else under Landlock with a seccomp filter, else so and saying so."""

from turnwise.drivers.tools.sandbox.choosing import Sandbox, find_sandbox
from turnwise.drivers.tools.sandbox.environment import command_environment, is_secret
from turnwise.drivers.tools.sandbox.git import CannotGuard, GitGuard, PutBack
from turnwise.drivers.tools.sandbox.kinds import Kind, Wrapped
from turnwise.drivers.tools.sandbox.scratch import Scratch

__all__ = [
    "CannotGuard",
    "GitGuard",
    "Kind",
    "PutBack",
    "Sandbox",
    "Scratch",
    "Wrapped",
    "command_environment",
    "find_sandbox",
    "is_secret",
]
