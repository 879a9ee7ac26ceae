"""Bench parts of the THC worker, and accuracy of codecs."""
