"""The DDP hooks by the name that programs import them by; they stand in `gradnic.host`."""

from .host.ddp_hook import inceptionn_hook, thc_hook

__all__ = ["inceptionn_hook", "thc_hook"]
