"""Golden aggregator, its jobs and slots, and whole all-reduces through it (THC)."""
