"""Tables as columns: the base of data frames and Arrow tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ._errors import need

Columns = dict[str, list[Any]]

#: Columns of values, in the order of a frame.
ROW = (
    "study", "on", "profile", "cpus", "hz", "arm", "seed", "metric", "value", "unit", "better",
    "headline",
)  # fmt: skip


def varying(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the parameters that are not equal in all documents that have them."""
    seen: dict[str, set] = {}
    for document in documents:
        for name, value in document["params"].items():
            seen.setdefault(name, set()).add(repr(value))
    return [name for name, values in seen.items() if len(values) > 1 and name not in ROW]


def value_columns(
    documents: Sequence[Mapping[str, Any]], params: Sequence[str] | None = None
) -> Columns:
    """Returns the values of documents: a row for each arm, seed and metric.

    ``params`` have columns of their own: those that differ between documents if not given.
    """
    params = varying(documents) if params is None else params
    columns: Columns = {name: [] for name in (*ROW, *params)}
    for document in documents:
        shared = [document[name] for name in ("study", "on", "profile", "cpus", "hz")]
        own = [document["params"].get(name) for name in params]
        for arm in document["arms"]:
            for name, metric in arm["metrics"].items():
                better, headline = metric.get("better"), metric.get("headline", False)
                for seed, value in zip(arm["seeds"], metric["values"]):
                    value = None if value is None else float(value)
                    row = [*shared, arm["arm"], seed, name, value, metric["unit"], better, headline]
                    for column, cell in zip(columns.values(), (*row, *own)):
                        column.append(cell)
    return columns


def mean_rows(documents: Sequence[Mapping[str, Any]], headlines: bool) -> list[dict[str, Any]]:
    """Returns the means of metrics with their 95 % intervals: a row for each arm and metric."""
    params = varying(documents)
    rows = []
    for document in documents:
        shared = {name: document[name] for name in ("study", "on", "profile", "cpus", "hz")}
        shared |= {name: document["params"].get(name) for name in params}
        for arm in document["arms"]:
            for name, metric in arm["metrics"].items():
                if headlines and not metric.get("headline"):
                    continue
                low, high = metric.get("ci95") or (None, None)
                rows.append(
                    {
                        **shared,
                        "arm": arm["arm"],
                        "metric": name,
                        "mean": metric["mean"],
                        "low": low,
                        "high": high,
                        "unit": metric["unit"],
                        "seeds": len(arm["seeds"]),
                    }
                )
    return rows


def frame(columns: Columns) -> Any:
    """Returns columns as a data frame of pandas."""
    return need("pandas", "frames").DataFrame(columns)


def arrow(columns: Columns) -> Any:
    """Returns columns as a table of Arrow, for polars, DuckDB and Parquet."""
    pa = need("pyarrow", "frames")
    texts = {name: [text(cell) for cell in column] for name, column in columns.items()}
    return pa.table({name: _array(pa, column, texts[name]) for name, column in columns.items()})


def text(cell: Any) -> Any:
    """Returns a cell as the program writes it."""
    if isinstance(cell, bool):
        return "on" if cell else "off"
    return None if cell is None else str(cell)


def _array(pa: Any, column: list[Any], texts: list[Any]) -> Any:
    kinds = {type(cell) for cell in column if cell is not None}
    if str in kinds:  # Names repeat: a dictionary is a tenth of the size.
        return pa.array(texts).dictionary_encode()
    if kinds <= {int} or kinds <= {bool}:
        return pa.array(column)
    return pa.array([None if cell is None else float(cell) for cell in column], pa.float64())
