"""The graph scheduler (GraphTurbo, OSDI 2023, section 3)."""
