"""What a cluster of cards on direct links leaves behind, whatever its links and their stalls."""

from functools import partial
from typing import Any

import numpy as np

from gradnic.interface.schedule_table import Table

from .. import inceptionn
from ..reduction.reduce import combine
from ..schedule.all_reduce import add
from ..schedule.all_reduce import all_reduce as run


def all_reduce(
    table: Table, values: np.ndarray, *, op: str = "float", codec: dict[str, Any] | None = None
) -> np.ndarray:
    """Every node's replica: float32, shape (n_nodes, n_floats), as `values`.

    op : ``float``, or as of `gradnic.models.reduction.reduce.combine`, of words that `values` hold
    as float32 by their bits. codec : settings of `gradnic.models.inceptionn`, for floats: what is
    added is the codec's image of every partial sum, hop by hop, and roots keep that of the sum.
    """
    if codec:
        image = partial(inceptionn.image, **codec)
        return run(table, values, image=image, hop=image)
    if op == "float":
        return run(table, values, combine=add)

    def of_words(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return combine(a.view("<u4"), b.view("<u4"), op).view(a.dtype)

    return run(table, values, combine=of_words)
