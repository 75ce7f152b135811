"""Who is in the group, and how each proves it."""
