"""From the e-graph to the cheapest graph (extraction/), in fused sub-graphs (partition/); joint.py alternates both."""
