"""The golden INCEPTIONN codec."""

from .codec import coded_size, coded_sizes, compress, decompress, image, tags

__all__ = ["coded_size", "coded_sizes", "compress", "decompress", "image", "tags"]
