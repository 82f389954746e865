"""Changes between arms, over pairs of equal seeds. The program computes them."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _html
from ._binary import call
from ._errors import CallError
from ._table import frame, varying

_NUMBERS = ("before", "after", "change_percent", "low_percent", "high_percent", "p")
_WHOLE = ("cpus", "hz", "pairs")
_FLAGS = ("headline", "holds")


class Changes(Sequence[dict[str, Any]]):
    """Changes of metrics from one arm (or run) to another; each is a dictionary.

    ``change_percent`` is the Hodges-Lehmann estimate over pairs of seeds, with the ends of its 95 %
    interval; ``holds`` says whether the change of a headline holds over seeds when all headlines of the arm
    are tested together (Holm).
    """

    def __init__(self, rows: list[dict[str, Any]], base: str):
        self._rows, self.base = rows, base

    def __getitem__(self, at: Any) -> Any:
        return Changes(self._rows[at], self.base) if isinstance(at, slice) else self._rows[at]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)

    @property
    def headlines(self) -> Changes:
        """The changes of headlines only."""
        return Changes([row for row in self._rows if row["headline"]], self.base)

    def frame(self) -> Any:
        """Returns a data frame of pandas with a row for each change."""
        return frame({name: [row[name] for row in self._rows] for name in (self._rows or [{}])[0]})

    def _shown(self) -> list[list[Any]]:
        rows = []
        for row in self.headlines._rows or self._rows:
            if row["before"] == 0 and row["after"] == 0:
                continue
            end = [row[name] for name in ("low_percent", "high_percent")]
            span = "" if None in end else f"{end[0]:+.1f} to {end[1]:+.1f}"
            change = row["change_percent"]
            verdict = f"{row['verdict']}{'*' if row['holds'] else ''}"
            change = "" if change is None else f"{change:+.1f} %"
            where = f"{row['study']} {row['profile']}, {row['cpus']} CPUs"
            rows.append([where, row["arm"], row["metric"], row["before"], row["after"], change,
                         span, verdict])  # fmt: skip
        return rows

    _HEAD = ("run", "arm", "metric", "before", "after", "change", "95 % interval", "verdict")

    def __repr__(self) -> str:
        lines = [f"changes from {self.base} (headlines; * holds over seeds):"]
        for where, arm, metric, before, after, change, span, verdict in self._shown():
            means = f"{_html.number(before)} -> {_html.number(after)}"
            moved = " ".join(filter(None, [change, span and f"[{span}]", verdict]))
            lines.append(f"  {where}, {arm}: {metric} {means}, {moved}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        note = f"Changes from {self.base}; headlines; * the change holds over seeds."
        return f"<p>{note}</p>{_html.table(self._HEAD, self._shown())}"


def _cell(name: str, text: str) -> Any:
    if text == "":
        return None
    if name in _NUMBERS:
        return float(text)
    if name in _WHOLE:
        return int(text)
    return text == "true" if name in _FLAGS else text


def compare_arms(documents: Sequence[Mapping[str, Any]], base: str | None) -> Changes:
    """Returns the changes from an arm to all others of the same document."""
    params, rows = varying(documents), []
    with_others = [document for document in documents if len(document["arms"]) > 1]
    if not with_others:
        raise CallError("the results have one arm only: there is no change to show")
    for document in with_others:
        shown = {name: document["params"].get(name) for name in params}
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "run.json")
            file.write_text(json.dumps(document), "utf-8")
            found = _compared([str(file), *([f"--base={base}"] if base is not None else [])])
        rows += [{**row, **shown} for row in found]
    return Changes(rows, base or with_others[0]["arms"][0]["arm"])


def compare_files(before: Path, after: Path) -> list[dict[str, Any]]:
    """Returns the changes between two saved runs, as ``mmscale compare`` computes them."""
    return _compared([str(before), str(after)])


def _compared(words: list[str]) -> list[dict[str, Any]]:
    text = call(["compare", "--format", "csv", *words]).check()
    rows = csv.DictReader(io.StringIO(text))
    left_out = "document"
    return [{k: _cell(k, v) for k, v in row.items() if k != left_out} for row in rows]
