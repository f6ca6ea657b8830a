"""From the YAML a user writes to the plan that runs."""
