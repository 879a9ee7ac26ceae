"""The cards beside a LiteEth MAC."""
