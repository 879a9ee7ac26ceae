"""Parts that more than one NIC shell needs: crossings, memories, taps."""
