"""Formal proofs: stream rules, lemmas, equivalence."""
