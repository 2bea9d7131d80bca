"""The folder and the lab of the command line's tests: an editor's sessions are its sessions."""

from terminal.conftest import cli as cli
from terminal.conftest import folder as folder
from terminal.conftest import lab as lab
from terminal.conftest import shared_lab as shared_lab
