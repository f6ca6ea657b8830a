"""The simulator: a whole cluster in one process, under a seeded scheduler."""
