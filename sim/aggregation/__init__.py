"""Bench parts of the aggregator."""
