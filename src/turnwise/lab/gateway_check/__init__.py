"""`turnwise gateway check`: what a gateway makes of the lab's broken streams."""
