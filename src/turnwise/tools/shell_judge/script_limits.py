"""How much of a script is looked at. What is larger cannot be judged, and asks."""

MAX_SCRIPT_CHARS = 64 * 1024  # nobody reads more of it before saying yes
MAX_COMMANDS = 300
MAX_LOOKUPS = 4000  # of paths, some 20 us each
MAX_SEARCHES = 8  # of folders, for files that a search would show
MAX_DEPTH = 48
MAX_SCRIPTS = 8  # one in another
MAX_GUESSES_NESTED = 4  # what may run, in what may run
MAX_PLACES = 4
MAX_VALUES = 50  # that a variable may have, and words that they make
MAX_SUPPOSED = 2000  # commands among the words of programs that are not known


class TooMuch(Exception):
    """A script goes past a bound; the text says which."""
