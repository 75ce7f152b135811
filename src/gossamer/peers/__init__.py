"""Real peers: one node a process, messages over a network.

A peer is a block of one row, driven like any other: `node.py` takes the rounds, a `Transport` (`transport.py`; over
gRPC with mutual TLS in `grpc_transport.py`) carries frames, `group.py` says who belongs to the group and `keys.py`
makes the keys by which they know each other. When nothing fails, the models are those of the
simulator, to the last bit.
"""
