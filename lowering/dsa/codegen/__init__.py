"""The kernel generator (GraphTurbo, OSDI 2023, section 4)."""
