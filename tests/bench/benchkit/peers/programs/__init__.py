"""The peers' programs, each read by its own Python: not beside modules that bear the names of the peers' packages."""
