"""The cheapest partition: windows of the graph, each covered by groups that are proven cheapest."""
