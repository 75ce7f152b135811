"""What carries messages between blocks."""
