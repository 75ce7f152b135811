"""The transport over gRPC with mutual TLS."""

import os

# Before gRPC is imported, or it would not look: why a connection failed is told in this project's words (failures.py),
# and gRPC would add a line of its own, without the address, for every attempt. GRPC_VERBOSITY=INFO brings them back.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
