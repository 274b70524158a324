"""What RaiseStableHLO is made of: the graph, the matcher, and the tables of patterns."""
