"""What every benchmark shares: measuring in fresh processes in turn, records of what was found, and the page that shows them."""
