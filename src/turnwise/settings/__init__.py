"""What a user sets: the files, the options of a run, permissions, and what is known of models."""
