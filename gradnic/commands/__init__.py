"""Sub-commands of ``gradnic``: one file each, each with a click command named ``command``."""
