"""The golden aggregator by the name that programs import it by."""

from .aggregation.aggregator import Aggregator
from .aggregation.contribution import contribution

__all__ = ["Aggregator", "contribution"]
