"""GraphTurbo's tables: one figure a process, and how the tables are put together."""
