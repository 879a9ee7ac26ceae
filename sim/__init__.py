"""Bench parts: drivers, stimulus, simulators, the batch engine, clusters of RTL cards."""
