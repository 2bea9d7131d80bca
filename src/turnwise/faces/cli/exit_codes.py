"""The exit codes of `turnwise run`, in the words of every help that shows them."""

EXIT_CODES = """\
  0    answered and complete
  1    the output could not be written, or something else failed
  2    nothing was sent: wrong use, no key, a bad file, an unusable journal
  3    answered, not complete (step_limit, budget, time_limit, loop, a part)
  4    waiting: calls were left for later
  5    refused
  6    the provider failed
  7    the journal failed in mid-turn
  70   a bug of turnwise
  130  cancelled"""
