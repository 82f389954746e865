"""Other commands of the program, on files and folders of results."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ._binary import call, documents
from ._compare import Changes, compare_files
from ._errors import CallError
from ._run import Many, Progress, arguments, chosen, joined, several

WHATIF_SCHEMA = "mmscale/whatif/"


class Text(str):
    """Text of the program, shown as it is."""

    def __repr__(self) -> str:
        return str(self)


def letter(*paths: Any, arm: Many | None = None) -> Text:
    """Returns the block for the cover letter of a change, from saved runs and analyses.

    Args:
        paths: The document that the letter is about, or its folder; then other documents.
        arm: The arms that the letter is about; all if not given.
    """
    words = [] if arm is None else [f"--arm={joined(arm)}"]
    return Text(call(["letter", *words, "--", *map(os.fspath, paths)]).check())


def explain(
    report: Any, *, cpus: int | None = None, seconds: float | None = None, table: int | None = None
) -> Text:
    """Says which known problem a report or a mail resembles, and how to reproduce it.

    Args:
        report: A file, or the text of the report if it has more than one line.
        cpus: CPUs of the computer, if the report does not have them.
        seconds: Duration of the measurement, if the report does not have it.
        table: The number of the table, if the report has several.
    """
    values = {"cpus": cpus, "seconds": seconds, "table": table}
    words = [f"--{name}={value}" for name, value in values.items() if value is not None]
    text = report if isinstance(report, str) and "\n" in report else None
    file = "-" if text is not None else os.fspath(report)
    return Text(call(["explain", *words, "--", file], input=text).check())


def whatif(
    study: str,
    *,
    of: Many | None = None,
    seeds: int | None = None,
    seed: int | None = None,
    full: bool = False,
    progress: bool | None = None,
    **options: Any,
) -> Mapping[str, Any]:
    """Returns what a study gains if a lock is held for less time, or a cost is smaller.

    Args:
        study: The study.
        of: Lock classes, ``handoff``, ``lines``, operations of the profile; the locks that CPUs
            wait for if not given.
        seeds: Number of seeds; 2 if not given.
        seed: The first seed.
        full: Runs of full length; quick ones if not given.
        progress: Show progress.
        **options: ``cpus``, ``shape``, ``profile``, ``hz``, ``arm``, ``policy``, ``linux``,
            ``set`` as for :func:`run`. It has one arm.
    """
    words = chosen(full=full) + ([] if of is None else [f"--of={joined(of)}"])
    with Progress(progress) as bar:
        shared = arguments(study, seeds=seeds, seed=seed, **options)
        text = call(["whatif", *words, "--format=json", *shared], told=bar).check()
    found = documents(text, WHATIF_SCHEMA)
    if len(found) != 1:
        raise CallError(f"{len(found)} analyses: name one study and one value of each parameter")
    return found[0]


def compare(before: Any, after: Any) -> Changes:
    """Returns the changes of all metrics between two saved runs, or two folders of them."""
    for path in (before, after):
        if len(several(path)) != 1:
            raise CallError(f"{path!r} is no file and no folder")
    rows: Sequence[dict[str, Any]] = compare_files(Path(before), Path(after))
    return Changes(list(rows), str(before))
