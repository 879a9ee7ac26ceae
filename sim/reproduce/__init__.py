"""What papers claim, and what gradnic's models say of the same systems."""
