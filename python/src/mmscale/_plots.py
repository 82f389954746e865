"""Pictures with matplotlib: a curve with ribbons, paired dots, a tornado."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ._errors import CallError, need
from ._table import mean_rows, varying


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    return need("matplotlib.pyplot", "plot").subplots(figsize=(6.4, 4.0), layout="constrained")[1]


def _metric(documents: Sequence[Mapping[str, Any]], chosen: str | None) -> str:
    """Returns the chosen metric, or the first headline, or the first metric."""
    arms = [arm for document in documents for arm in document["arms"]]
    metrics = {name: one for arm in arms for name, one in arm["metrics"].items()}
    if chosen is not None:
        if chosen not in metrics:
            raise CallError(f"there is no metric `{chosen}` (known: {', '.join(metrics)})")
        return chosen
    headlines = [name for name, one in metrics.items() if one.get("headline")]
    found = headlines or list(metrics)
    if not found:
        raise CallError("the results have no metric")
    return found[0]


def plot_documents(
    documents: Sequence[Mapping[str, Any]],
    metric: str | None,
    kind: str | None,
    ax: Any = None,
    log: bool = False,
) -> Any:
    """Draws a metric of documents, in one of two kinds."""
    metric = _metric(documents, metric)
    kinds = {"curve": curve, "pairs": pairs}
    kind = kind or ("curve" if len(documents) > 1 else "pairs")
    if kind not in kinds:
        raise CallError(f"there is no plot `{kind}` (known: {', '.join(kinds)})")
    ax = kinds[kind](documents, metric, _axes(ax))
    ax.set_title(_title(documents), fontsize="medium")
    if log:
        ax.set_yscale("log")
    else:
        # A curve that begins at its smallest value shows no proportion.
        ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]) if ax.dataLim.y0 < 0 else 0.0)
        ax.yaxis.set_major_formatter(need("matplotlib.ticker", "plot").EngFormatter(sep=" "))
    return ax


def _title(documents: Sequence[Mapping[str, Any]]) -> str:
    """Returns what all documents share: study, machine, CPUs."""

    def shared(name: str, form: str) -> list[str]:
        values = list(dict.fromkeys(document[name] for document in documents))
        return [form.format(values[0])] if len(values) == 1 else []

    study = " and ".join(dict.fromkeys(document["study"] for document in documents))
    return ", ".join([study, *shared("profile", "{}"), *shared("cpus", "{} CPUs")])


def _swept(documents: Sequence[Mapping[str, Any]]) -> str:
    """Returns what a curve is over: CPUs, or the one parameter that differs."""
    if len({document["cpus"] for document in documents}) > 1:
        return "cpus"
    if varying(documents):
        return varying(documents)[0]
    return "profile" if len({document["profile"] for document in documents}) > 1 else "cpus"


def curve(documents: Sequence[Mapping[str, Any]], metric: str, ax: Any) -> Any:
    """Draws the means of each arm over what was swept, with 95 % intervals as ribbons."""
    over = _swept(documents)
    rows = [row for row in mean_rows(documents, headlines=False) if row["metric"] == metric]
    others = [n for n in ("study", "profile", *varying(documents)) if n != over]
    others = [name for name in others if len({row[name] for row in rows}) > 1]
    lines: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        label = ", ".join([row["arm"], *(str(row[name]) for name in others)])
        lines.setdefault(label, []).append(row)
    numbers = all(isinstance(row[over], (int, float)) for row in rows)
    drawn: dict[Any, str] = {}
    for label, points in lines.items():
        points = sorted(points, key=lambda row: row[over]) if numbers else points
        x = [row[over] if numbers else str(row[over]) for row in points]
        mean = [row["mean"] for row in points]
        ends = [[row["mean"] if row[end] is None else row[end] for row in points]
                for end in ("low", "high")]  # fmt: skip
        # Of lines that are equal, the later ones are dashes on the first.
        key = (tuple(x), tuple(mean))
        name = f"{label} (equal to {drawn[key]})" if key in drawn else label
        style = "--" if key in drawn else "-"
        drawn.setdefault(key, label)
        (line,) = ax.plot(x, mean, style, marker="o", markersize=3, label=name)
        ax.fill_between(x, *ends, alpha=0.2, color=line.get_color(), linewidth=0)
    if over == "cpus" and numbers:
        ax.set_xscale("log", base=2)
        ticks = sorted({row[over] for row in rows})
        ax.set_xticks(ticks, [str(tick) for tick in ticks])
    ax.set_xlabel("CPUs" if over == "cpus" else over)
    return _finished(ax, metric, rows[0]["unit"] if rows else "")


def pairs(documents: Sequence[Mapping[str, Any]], metric: str, ax: Any) -> Any:
    """Draws the value of each seed in each arm, joined: arms share their seeds."""
    unit, place, names = "", 0, []
    for document in documents:
        arms = [arm for arm in document["arms"] if metric in arm["metrics"]]
        for at, arm in enumerate(arms):
            unit = arm["metrics"][metric]["unit"]
            names.append(arm["arm"] if len(documents) == 1 else f"{arm['arm']}\n{document['cpus']}")
            values = dict(zip(arm["seeds"], arm["metrics"][metric]["values"]))
            if at > 0:
                before = dict(zip(arms[at - 1]["seeds"], arms[at - 1]["metrics"][metric]["values"]))
                for seed in before.keys() & values.keys():
                    if None not in (before[seed], values[seed]):
                        ends = [before[seed], values[seed]]
                        ax.plot([place - 1, place], ends, color="0.75", linewidth=0.8, zorder=1)
            dots = [value for value in values.values() if value is not None]
            ax.scatter([place] * len(dots), dots, s=18, zorder=2)
            place += 1
    ax.set_xticks(range(len(names)), names)
    ax.set_xlabel("arm")
    return _finished(ax, metric, unit, legend=False)


def _finished(ax: Any, metric: str, unit: str, legend: bool = True) -> Any:
    ax.set_ylabel(metric if unit in ("", "1") else f"{metric} [{unit}]")
    ax.grid(True, alpha=0.25)
    if legend and len(ax.get_legend_handles_labels()[1]) > 1:
        ax.legend(fontsize="small")
    return ax


def tornado(
    document: Mapping[str, Any],
    arm: str | None = None,
    metric: str | None = None,
    top: int = 10,
    ax: Any = None,
) -> Any:
    """Draws how far the costs move a claim: a bar from one end of each range to the other."""
    claims = [c for c in document["claims"] if arm in (None, c["arm"])]
    claims = [c for c in claims if metric in (None, c["metric"])]
    if not claims:
        known = ", ".join(f"{c['arm']}: {c['metric']}" for c in document["claims"])
        raise CallError(f"there is no claim about arm {arm}, metric {metric} (known: {known})")
    claim, ax = claims[0], _axes(ax)
    moved = sorted(claim["moved"], key=lambda one: abs(one["percent"][1] - one["percent"][0]))
    for place, one in enumerate(moved[-top:]):
        low, high = one["percent"]
        for end, color in ((low, "tab:blue"), (high, "tab:orange")):
            ax.barh(place, end - claim["percent"], left=claim["percent"], color=color, height=0.7)
    names = [f"{one['name']} ({one['basis']})" for one in moved[-top:]]
    ax.set_yticks(range(len(names)), names, fontsize="small")
    ax.axvline(claim["percent"], color="0.3", linewidth=0.8)
    ax.axvline(0, color="0.7", linewidth=0.8, linestyle=":")
    ax.set_xlabel(f"change of {claim['metric']} with {claim['arm']}, %")
    ax.set_title("blue: low end of the range; orange: high end", fontsize="small")
    return ax
