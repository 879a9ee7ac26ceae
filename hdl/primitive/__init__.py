"""Block RAM, multiplier and the build target: portable bodies and those of a family."""
