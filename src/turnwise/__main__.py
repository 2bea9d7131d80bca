"""`python -m turnwise`."""

from turnwise.terminal.main import main

main()
