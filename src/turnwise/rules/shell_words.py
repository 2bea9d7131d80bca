"""Words of bash's own, by what it does with them. Whoever needs some of them takes them from here.

Source: bash manual, Reserved Words and Shell Builtin Commands.
"""

# Words of the grammar: where a command may stand, none of them is the name of one.
RESERVED = frozenset("! { } (( then else elif do done fi if while until for case esac in function select".split())
# Builtins that give variables a value or take it away; the declaring ones are words of tree-sitter's grammar, too.
DECLARING = frozenset("declare typeset export readonly local unset".split())
SETTING = DECLARING | frozenset("read mapfile readarray getopts printf let".split())
# `find` runs the words behind them.
FIND_RUNS = ("-exec", "-execdir", "-ok", "-okdir")
# They change the folder of what comes after them.
MOVING = frozenset("cd pushd popd".split())
# They are no programs, so no file of that name is run; these are what this reading knows more about.
IN_SHELL = MOVING | frozenset("eval source . trap test [".split())
