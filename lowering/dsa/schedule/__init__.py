"""The graph scheduler (GraphTurbo, OSDI 2023, section 3): sub-graphs, their instances, orders and core bindings."""
