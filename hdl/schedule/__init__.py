"""The message scheduler that runs schedule tables (MultiTree, section 4)."""
