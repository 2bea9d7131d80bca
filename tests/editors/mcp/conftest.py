"""The folder and the lab of the command line's tests: a client's runs are its runs."""

from terminal.conftest import cli as cli
from terminal.conftest import folder as folder
from terminal.conftest import lab as lab
from terminal.conftest import own_file as own_file
from terminal.conftest import shared_lab as shared_lab
