"""Wrappers that put a card into a NIC shell: a folder for each, and the parts they share."""

from importlib import import_module

from gradnic.interface.params import changed

SHELLS = {
    "corundum": ("Corundum", "application block, on the sync or the direct tap"),
    "opennic": ("OpenNic", "plugin folder for the 250 MHz box"),
    "liteeth": ("LiteEth", "bridge between MAC core and crossbar"),
}
"""Class of the shell's options, in ``wrapper.py`` of the shell's folder, and a line for people."""


def shell(name, changes=()):
    """Options of a shell, with `changes` as ("key=value", …); an object with a method `files`.

    ValueError for an unknown shell or key, one that is there twice, and a value out of range.
    """
    if name not in SHELLS:
        raise ValueError(f"shell must be one of {', '.join(SHELLS)}, not {name!r}")
    kind = getattr(import_module(f".{name}.wrapper", __package__), SHELLS[name][0])
    return kind(**changed(f"an option of {name}", kind, changes))
