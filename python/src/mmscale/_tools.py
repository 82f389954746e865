"""Other commands of the program: saved runs compared, letters, reports explained, what if."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ._binary import call
from ._compare import Changes, compare_files
from ._errors import CallError
from ._results import Result, Results
from ._run import Progress, arguments, studies

#: Saved documents: a file or folder of ``mmscale run -o``, or results.
Saved = Any


@contextmanager
def _path(saved: Saved) -> Iterator[str]:
    """Gives the path of documents, which results get for the time of a call."""
    if isinstance(saved, (str, os.PathLike)):
        yield os.fspath(saved)
        return
    if isinstance(saved, Result):
        saved = Results([saved])
    if not isinstance(saved, Results):
        raise CallError(f"{saved!r} is no result: give results, or the path of saved ones")
    with tempfile.TemporaryDirectory() as folder:
        saved.save(folder)
        yield folder


def compare(before: Saved, after: Saved) -> Changes:
    """Returns the changes of all metrics from saved runs to others, over pairs of seeds.

    Args:
        before: Results, or the path of a document or folder of ``mmscale run -o``.
        after: The results to compare with them.
    """
    with _path(before) as one, _path(after) as two:
        return Changes(compare_files(Path(one), Path(two)), "the first runs")


def letter(saved: Saved, *, arm: str | None = None) -> str:
    """Returns the block for a cover letter about saved runs."""
    with _path(saved) as path:
        words = [f"--arm={arm}"] if arm is not None else []
        return call(["report", "--letter", *words, "--", path]).check()


def explain(report: str | os.PathLike[str], *, cpus: int | None = None, run: bool = False) -> str:
    """Returns which known problem a report resembles, and how to reproduce it.

    Args:
        report: The text of a report with its newlines, or the path of a file.
        cpus: CPUs of the computer, if the report does not have them.
        run: Run the study that it resembles, and show measured waits next to simulated ones.
    """
    is_text = isinstance(report, str) and "\n" in report
    words = [f"--cpus={cpus}"] if cpus is not None else []
    words += ["--run"] if run else []
    path = "-" if is_text else os.fspath(report)
    answer = call(["explain", *words, "--", path], input=report if is_text else None)
    # With 3 nothing in the report is known, and the answer says what was seen.
    return answer.stdout if answer.returncode == 3 else answer.check()


def whatif(
    study: str, *, of: str | None = None, progress: bool | None = None, **options: Any
) -> Mapping[str, Any]:
    """Returns the document that tells what a study gains where a lock or a cost is cheaper.

    Args:
        study: The study.
        of: Lock classes, ``handoff``, ``lines``, or operations of the profile.
        progress: Show progress.
        **options: ``cpus``, ``shape``, ``profile``, ``hz``, ``arm``, ``policy``, ``linux``,
            ``set``, ``seeds``, ``seed`` as for :func:`mmscale.run`.
    """
    words = [f"--of={of}"] if of is not None else []
    with Progress(progress) as bar:
        args = ["whatif", *arguments(**options), *words, "--format=json", *studies(study)]
        answer = call(args, told=bar)
    answer.check()
    return answer.document("schema")
