"""What users touch: the library and the command line."""
