"""gradnic: generator of the network-card and switch datapath that moves gradients."""

from importlib.metadata import version

__version__ = version("gradnic")
