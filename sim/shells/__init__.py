"""Benches of cards inside shells."""
