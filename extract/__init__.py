"""From the e-graph to the cheapest graph (extraction/), cut into fused sub-graphs (partition/); joint.py alternates."""
