"""The runs of a sweep as a Parquet file, by pyarrow: a table for pandas, Polars, DuckDB or Spark.

The file is written once, when all runs are there: Parquet ends in a footer that speaks of all its
rows, so runs cannot be appended as they end. What is appended is the file of JSON lines,
`gradnic.cluster`.
"""

import io
import json

from gradnic.output import write_whole


def write(path, keys, work, results):
    """Write one row a run: ``key``, the arguments as ``item.NAME``, and what came out.

    keys : of the runs, text. work : dicts of arguments. results : what JSON can hold; the members
    of a dict are columns ``result.NAME``, and so are those of dicts in it (``result.A.B``), others
    one column ``result``.
    A column whose values are all numbers, all texts or all truths, or None, has that type; any
    other holds JSON text. OSError if the file cannot be written.
    """
    import pyarrow
    from pyarrow import parquet

    rows = [{"key": key, **_flat("item", item), **_flat("result", result)}
            for key, item, result in zip(keys, work, results, strict=True)]  # fmt: skip
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: _column([row.get(name) for row in rows]) for name in names}
    data = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), data)
    write_whole(path, data.getvalue())


def _flat(name, value):
    """{column: value} of a value: a dict's members with dotted names."""
    if not isinstance(value, dict) or not value:
        return {name: value}
    return {k: v for own, one in value.items() for k, v in _flat(f"{name}.{own}", one).items()}


def _column(values):
    import pyarrow

    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        values = [value if value is None else float(value) for value in values]
        kinds = {float}
    fits = all(-(1 << 63) <= v < 1 << 63 for v in values if type(v) is int)
    if len(kinds) < 2 and kinds <= {int, float, str, bool} and fits:
        return pyarrow.array(values)
    return pyarrow.array([value if value is None else json.dumps(value) for value in values])
