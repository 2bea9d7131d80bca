"""The folder and the lab of the command line's tests: a client's runs are its runs."""

from faces.cli.conftest import cli as cli
from faces.cli.conftest import folder as folder
from faces.cli.conftest import lab as lab
from faces.cli.conftest import own_file as own_file
from faces.cli.conftest import shared_lab as shared_lab
