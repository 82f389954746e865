"""Results of runs: documents of the program with frames, comparisons and pictures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _html
from ._errors import CallError, need
from ._table import arrow, frame, mean_rows, value_columns, varying

if TYPE_CHECKING:
    from ._compare import Changes

SCHEMA = "mmscale/run/"
ROBUST_SCHEMA = "mmscale/robust/"


class _Tables:
    """What single results and several have in common; ``_documents`` are those of the program."""

    _documents: list[Mapping[str, Any]]

    def frame(self) -> Any:
        """Returns a tidy data frame of pandas: a row for each arm, seed and metric.

        Parameters that differ between the documents have columns of their own.
        """
        return frame(value_columns(self._documents))

    def arrow(self) -> Any:
        """Returns the same rows as a table of Arrow, for DuckDB and Parquet."""
        return arrow(value_columns(self._documents))

    def polars(self) -> Any:
        """Returns the same rows as a data frame of polars."""
        return need("polars", "polars").from_arrow(self.arrow())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Gives the rows to any library that reads Arrow: ``polars.DataFrame(results)``."""
        return self.arrow().__arrow_c_stream__(requested_schema)

    def means(self, headlines: bool = True) -> Any:
        """Returns a data frame of means with 95 % intervals, of the headlines or all metrics."""
        return need("pandas", "frames").DataFrame(mean_rows(self._documents, headlines))

    def to_xarray(self) -> Any:
        """Returns a data set of xarray: a variable for each metric.

        Its dimensions are arm, seed, and what was swept: profile, cpus, hz, parameters.
        """
        return to_xarray(self._documents)

    def compare(self, base: str | None = None) -> Changes:
        """Returns the changes of all metrics from an arm to the others, over pairs of seeds.

        ``base`` is the first arm if not given.
        """
        from ._compare import compare_arms

        return compare_arms(self._documents, base)

    def plot(self, metric: str | None = None, kind: str | None = None, **options: Any) -> Any:
        """Draws a metric and returns the axes of matplotlib.

        ``kind`` is ``curve`` (means over what was swept, with their 95 % intervals as ribbons) or
        ``pairs`` (the values of each seed, joined between arms). A sweep has a curve by default,
        all else pairs. ``metric`` is the first headline if not given. ``ax`` and ``log`` are
        options.
        """
        from ._plots import plot_documents

        return plot_documents(self._documents, metric, kind, **options)


class Result(_Tables):
    """The result of one study on one machine with one set of parameters: all arms and seeds."""

    def __init__(self, document: Mapping[str, Any], text: str | None = None):
        self.document, self.text = document, text
        self._documents = [document]

    @property
    def study(self) -> str:
        """The name of the study."""
        return self.document["study"]

    @property
    def profile(self) -> str:
        """The machine profile; ``host`` if it ran on this computer."""
        return self.document["profile"]

    @property
    def cpus(self) -> int:
        """CPUs of the machine."""
        return self.document["cpus"]

    @property
    def params(self) -> dict[str, Any]:
        """All parameters of the study."""
        return dict(self.document["params"])

    @property
    def arms(self) -> list[str]:
        """The names of the arms, starting with the one to compare with."""
        return [arm["arm"] for arm in self.document["arms"]]

    @property
    def seeds(self) -> list[int]:
        """The seeds that an arm has a result of."""
        return sorted({seed for arm in self.document["arms"] for seed in arm["seeds"]})

    @property
    def fingerprint(self) -> str:
        """16 digits that identify the results: equal ones are equal bit for bit."""
        return self.document["fingerprint"]

    @property
    def failures(self) -> list[dict[str, Any]]:
        """Runs without a result: arm, seed, and why."""
        return list(self.document.get("failures", []))

    @property
    def answer(self) -> str:
        """The answer in words: what limits, what changes, what is missing."""
        if self.text is not None:
            return self.text.split("\n\n", 1)[0]
        return f"{self.study} on {self.profile}, {self.cpus} CPUs: {', '.join(self.arms)}"

    @property
    def limit(self) -> str:
        """What limits the first arm, in one line; empty where the text of the run is missing."""
        return _entry(self.answer, "limit") if self.text is not None else ""

    def save(self, path: Any) -> Path:
        """Writes the document as ``mmscale run -o`` does, for ``mmscale compare`` and others."""
        path = Path(path)
        try:
            path.write_text(json.dumps(self.document) + "\n", "utf-8")
        except OSError as why:
            raise CallError(f"cannot write `{path}`: {why.strerror}") from why
        return path

    def __repr__(self) -> str:
        return self.answer

    def _repr_html_(self) -> str:
        return _html.pre(self.answer) + _means_html(self._documents)


class Results(_Tables):
    """The results of a call: one for each point of a sweep, as a list."""

    def __init__(self, results: Iterable[Result]):
        self._results = list(results)
        self._documents = [result.document for result in self._results]

    def __getitem__(self, at: Any) -> Any:
        return Results(self._results[at]) if isinstance(at, slice) else self._results[at]

    def __len__(self) -> int:
        return len(self._results)

    def __iter__(self) -> Iterator[Result]:
        return iter(self._results)

    def where(self, **values: Any) -> Results:
        """Returns the results with these values: ``where(cpus=32, madvise="none")``."""

        def has(result: Result) -> bool:
            known = {**result.document["params"], **result.document}
            return all(known.get(name) == value for name, value in values.items())

        return Results(filter(has, self))

    def save(self, folder: Any) -> None:
        """Writes all documents to a folder, for ``mmscale compare`` and ``report``."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for at, result in enumerate(self):
            result.save(folder / f"{at:04}-{result.study}-{result.profile}-{result.cpus}.json")

    def __repr__(self) -> str:
        if len(self) == 1:
            return repr(self[0])
        lines = [f"{len(self)} results:"]
        lines += [f"  {title}: {limit}" for title, limit in self._limits()]
        for row in _shown(self._documents):
            point = " ".join(f"{name}={row[name]}" for name in _points(self._documents))
            mean, unit = _html.number(row["mean"]), row["unit"]
            lines.append(f"  {row['study']} {point} {row['arm']}: {row['metric']} {mean} {unit}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        if len(self) == 1:
            return self[0]._repr_html_()
        answers = zip(self._limits(), self)
        opened = [_html.details(f"{title}: {limit}", one.answer) for (title, limit), one in answers]
        return "".join(opened) + _means_html(self._documents)

    def _limits(self) -> list[tuple[str, str]]:
        """Returns for each result its study and machine, and what limits it."""
        names = _points(self._documents)
        found = []
        for result in self:
            known = {**result.params, **result.document}
            point = " ".join(f"{name}={known.get(name)}" for name in names)
            limit = result.limit or "the answer is in its text, which is not here"
            found.append((f"{result.study} {point}".strip(), limit))
        return found


class Robustness:
    """What the conclusions of a study depend on: each cost of the machine was moved."""

    def __init__(self, document: Mapping[str, Any]):
        self.document = document

    @property
    def claims(self) -> list[Mapping[str, Any]]:
        """The conclusions, each with the costs that move it."""
        return self.document["claims"]

    @property
    def levels(self) -> list[Mapping[str, Any]]:
        """The levels of the headlines of an arm alone, each with the costs that move it."""
        return self.document.get("levels", [])

    def frame(self) -> Any:
        """Returns a data frame: for each claim and cost, the change at both ends of its range."""
        rows = [
            {
                "arm": claim["arm"],
                "metric": claim["metric"],
                "percent": claim["percent"],
                "cost": moved["name"],
                "basis": moved["basis"],
                "low_end_percent": moved["percent"][0],
                "high_end_percent": moved["percent"][1],
            }
            for claim in self.claims
            for moved in claim["moved"]
        ]
        return need("pandas", "frames").DataFrame(rows)

    def holds(self) -> dict[str, float]:
        """Returns for each claim the share of drawn machines on which it has the same sign."""
        found = {}
        for claim in self.claims:
            drawn = claim["drawn_percent"]
            same = sum(value * claim["percent"] > 0 for value in drawn)
            found[f"{claim['arm']}: {claim['metric']}"] = same / len(drawn) if drawn else 0.0
        return found

    def plot(self, arm: str | None = None, metric: str | None = None, **options: Any) -> Any:
        """Draws a tornado: how far each cost moves a claim. ``top`` and ``ax`` are options."""
        from ._plots import tornado

        return tornado(self.document, arm, metric, **options)

    def _rows(self) -> list[list[Any]]:
        held = self.holds()
        rows = []
        for name, claim in zip(held, self.claims):
            share = f"{held[name]:.0%} of {len(claim['drawn_percent'])}"
            rows.append([name, f"{claim['percent']:+.1f} %", share])
        return rows

    def __repr__(self) -> str:
        lines = (f"  {name}: {change}, holds over costs on {share}" for name, change, share in self._rows())
        return "\n".join([f"{self.document['study']} on {self.document['profile']}:", *lines])

    def _repr_html_(self) -> str:
        head = ["conclusion", "change", "holds over costs, of the drawn machines"]
        return _html.table(head, self._rows())


def _points(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the names of what differs between documents, except for the study."""
    fixed = [name for name in ("profile", "cpus", "hz") if len({d[name] for d in documents}) > 1]
    return fixed + varying(documents)


def _entry(answer: str, name: str) -> str:
    """Returns an entry of an answer, whose further lines are indented, as one line."""
    words: list[str] = []
    for line in answer.split("\n"):
        if words and line.startswith("  "):
            words.append(line.strip())
        elif words:
            break
        elif line.startswith(f"{name} "):
            words.append(line.removeprefix(name).strip())
    return " ".join(words)


def _shown(documents: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the means of headlines, else of all metrics; none of metrics that are always 0."""
    rows = mean_rows(documents, headlines=True) or mean_rows(documents, headlines=False)
    counted = {(row["study"], row["metric"]) for row in rows if row["mean"] not in (None, 0)}
    return [row for row in rows if (row["study"], row["metric"]) in counted]


def _means_html(documents: Sequence[Mapping[str, Any]]) -> str:
    names = _points(documents)
    if len({document["study"] for document in documents}) > 1:
        names.insert(0, "study")
    head = [*names, "arm", "metric", "mean", "low", "high", "unit", "seeds"]
    return _html.table(head, ([row[name] for name in head] for row in _shown(documents)))


def to_xarray(documents: Sequence[Mapping[str, Any]]) -> Any:
    """Returns documents of one study as a data set of xarray."""
    need("xarray", "xarray")
    if len({document["study"] for document in documents}) != 1:
        raise CallError("a data set has one study: choose one with where(study=..)")
    table = frame(value_columns(documents))
    index = [*_points(documents), "arm", "seed"]
    wide = table.pivot(index=index, columns="metric", values="value")
    data = wide.to_xarray()
    for document in documents:
        for arm in document["arms"]:
            for name, metric in arm["metrics"].items():
                data[name].attrs["unit"] = metric["unit"]
    data.attrs["study"] = documents[0]["study"]
    # Arms in the order of the call, not of the alphabet.
    arms = list(dict.fromkeys(arm["arm"] for document in documents for arm in document["arms"]))
    return data.sel(arm=arms)


#: What a document of a run has at least.
_KEYS = ("arms", "cpus", "fingerprint", "hz", "on", "params", "profile", "study")


def is_run(document: Mapping[str, Any]) -> bool:
    """Returns whether a document is one of a run, and not of another analysis."""
    return str(document.get("schema", "")).startswith(SCHEMA)


def read(path: Any) -> Results:
    """Reads results that ``mmscale run -o`` wrote: a document, or a folder of them.

    Raises:
        CallError: A file cannot be read, or is no complete document.
    """
    path = Path(path)
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    found = []
    for file in files:
        lines = [line for line in read_text(file).split("\n") if line.strip()]
        documents = [document for line in lines if is_run(document := parsed(file, line))]
        text = file.with_suffix(".txt")
        shown = read_text(text) if len(lines) == 1 and text.exists() else None
        found += [Result(document, shown) for document in documents]
    if not found:
        raise CallError(f"there are no documents of runs in `{path}`")
    return Results(found)


def read_text(file: Path) -> str:
    """Returns the text of a file; a file that cannot be read is a wrong call."""
    try:
        if not file.is_file():
            raise CallError(f"cannot read `{file}`: it is missing, or no regular file")
        return file.read_text("utf-8")
    except OSError as why:
        raise CallError(f"cannot read `{file}`: {why.strerror}") from why
    except ValueError as why:
        raise CallError(f"cannot read `{file}`: it is not UTF-8 text") from why


def parsed(file: Path, text: str) -> dict[str, Any]:
    """Returns the document that a file has; one of a run must be complete."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as why:
        raise CallError(f"`{file}` is not a document of mmscale: {why}") from why
    if not isinstance(document, dict):
        raise CallError(f"`{file}` is not a document of mmscale: it has no fields")
    missing = [key for key in _KEYS if key not in document]
    if is_run(document) and missing:
        raise CallError(f"`{file}` is not a complete document: it has no `{missing[0]}`")
    return document
