"""Real peers: one process per node, messages over a network.

A peer is a block of one row, driven like any other: `rounds.py` takes the rounds, a `Transport` (`transport.py`; over
gRPC with mutual TLS in `grpc/`) carries frames, `identity/` says who belongs to the group and makes the keys by which
they know each other, and `peer.py` puts them together. `local/` runs a group on one machine, `watch/` shows one that is
spread over several. When nothing fails, the models are those of the simulator, to the last bit.
"""
