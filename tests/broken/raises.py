"""A module that cannot be imported."""

NOTHING = {}
EACH = NOTHING["each"]
