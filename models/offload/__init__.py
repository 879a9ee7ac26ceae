"""Golden offload card and clusters of it."""
