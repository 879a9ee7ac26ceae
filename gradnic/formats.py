"""The wire formats by the name that programs import them by; see `gradnic.interface.formats`."""

from .interface.formats import *  # noqa: F403
