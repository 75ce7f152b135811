"""Local training: what each node does between two exchanges."""
