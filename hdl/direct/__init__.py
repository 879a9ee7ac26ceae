"""The card on direct links: flits, credits, merging (MultiTree)."""
