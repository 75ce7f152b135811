"""A run: a directory that keeps what came of an experiment."""
