"""The offload card: a whole all-reduce over Ethernet by itself."""
