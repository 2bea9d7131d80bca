"""Exit codes that several modules name, and those of `turnwise run` and `turnwise check` in the words of every help."""

EXIT_CODES = """\
  0    answered and complete
  1    the output could not be written, or something else failed
  2    nothing was sent: wrong use, no key, a bad file, an unusable journal
  3    answered, not complete (step_limit, budget, time_limit, loop, a part)
  4    waiting: calls were left for later
  5    refused
  6    the provider failed
  7    the journal failed in mid-turn
  8    answered and complete, but calls were denied and nothing was changed
  9    given up: the process died again and again
  10   a tool failed, and the program that began the turn ends it so
  70   a bug of turnwise
  130  cancelled"""

USAGE = 2
CANCELLED = 130  # what a shell shows for a program that Ctrl-C has ended
NOTHING_CHANGED = 8
REPLAY_DIFFERS = 3
FAULTS_FOUND, NOT_THERE = 3, 6
CHECK_CODES = {"fine": 0, "faults": FAULTS_FOUND, "no_server": NOT_THERE}
"""The exit codes of `turnwise check`, by its outcome."""
CHECK_EXIT_CODES = f"""\
  0    it works; turnwise heals what is wrong
  1    the output could not be written
  2    nothing was sent: wrong use, no key, or --yes is missing
  {FAULTS_FOUND}    something does not work
  {NOT_THERE}    no answer came: no server, another API, or every request was refused
  130  cancelled: you said no, or Ctrl-C or SIGTERM (what was found is shown)"""
