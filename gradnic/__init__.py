"""gradnic: generator of the network-card and switch datapath that moves gradients."""

__version__: str


def __getattr__(name: str) -> str:
    """The version, when somebody asks: finding it takes longer than all else of a start."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    return version("gradnic")
