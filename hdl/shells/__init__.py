"""Wrappers that put a card into a NIC shell: one file per shell, and the parts that they share."""
