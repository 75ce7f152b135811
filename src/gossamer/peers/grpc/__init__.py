"""The transport over gRPC with mutual TLS."""
