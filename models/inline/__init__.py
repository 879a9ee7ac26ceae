"""Golden in-line card and the aggregator-free ring (INCEPTIONN)."""
