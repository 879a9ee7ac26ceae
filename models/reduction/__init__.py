"""Golden sums of floats and codes."""
