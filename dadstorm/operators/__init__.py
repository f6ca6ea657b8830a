"""The operators: one kernel a file."""
