"""The golden aggregator by the name that programs import it by."""

from .aggregation.parser import Aggregator, contribution

__all__ = ["Aggregator", "contribution"]
