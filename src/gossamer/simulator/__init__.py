"""The simulator: every node of an experiment on this machine."""
