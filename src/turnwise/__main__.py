"""`python -m turnwise`."""

from turnwise.faces.cli.main import main

main()
