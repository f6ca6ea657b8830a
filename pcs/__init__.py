"""The Process Creation Service: one per host, the parent of the host's replicas."""
