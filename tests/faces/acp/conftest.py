"""The folder and the lab of the command line's tests: an editor's sessions are its sessions."""

from faces.cli.conftest import cli as cli
from faces.cli.conftest import folder as folder
from faces.cli.conftest import lab as lab
from faces.cli.conftest import shared_lab as shared_lab
