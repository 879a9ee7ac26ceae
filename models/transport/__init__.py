"""Golden bounded-loss transport (DLCP)."""
