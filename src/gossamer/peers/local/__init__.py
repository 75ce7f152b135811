"""A group of peers on this machine, to try things and for tests."""
