"""The loops of the codec, compiled by numba."""
