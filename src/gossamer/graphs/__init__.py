"""Who talks to whom: graphs, their schedules, mixing matrices, and which messages arrive."""
