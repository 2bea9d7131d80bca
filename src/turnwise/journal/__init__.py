"""What happened and what it cost: the journal, the ledger in it, and the prices of models."""
