"""Where which arm is best: maps of ``mmscale settle``."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Union

from ._binary import call
from ._errors import CallError, need, switch
from ._html import pre
from ._results import read_text
from ._run import Progress, arguments, studies

#: The range of a knob: its ends, each with a unit if it is text (``("100us", "100ms")``), and
#: ``"log"`` or ``"linear"`` behind them if the steps are not to be chosen; or the words of the
#: command line (``"100us..100ms:log"``).
Range = Union[str, Sequence[Any]]


class Settlement:
    """A map: which arms are best at each place of the knobs, and how far it may be wrong."""

    def __init__(self, document: Mapping[str, Any], text: str, svg: str):
        #: The document, as ``settle.json`` has it.
        self.document = document
        #: The answer in some ten lines.
        self.text = text
        #: The picture of the map.
        self.svg = svg

    @property
    def regions(self) -> list[Mapping[str, Any]]:
        """The parts of the map with equal best arms, the largest first, with their shares."""
        return self.document["regions"]

    @property
    def error(self) -> Mapping[str, Any]:
        """The share of the map that may be wrong, and other errors."""
        return self.document["error"]

    def frame(self) -> Any:
        """Returns a data frame of the points: knobs, the metric of each arm, and the best arms."""
        knobs = [knob["name"] for knob in self.document["knobs"]]
        arms = self.document["arms"]
        rows = [
            {
                **dict(zip(knobs, point["at"])),
                **dict(zip(arms, point.get("values") or [None] * len(arms))),
                "best": ", ".join(point.get("best", [])),
            }
            for point in self.document["points"]
        ]
        return need("pandas", "frames").DataFrame(rows, columns=[*knobs, *arms, "best"])

    def __repr__(self) -> str:
        return self.text.rstrip("\n")

    def _repr_html_(self) -> str:
        return self.svg + pre(self.text)


def settle(
    study: str,
    knobs: Mapping[str, Range],
    *,
    output: str | os.PathLike[str] | None = None,
    metric: str | None = None,
    matters: float | None = None,
    runs: int | None = None,
    jobs: int | None = None,
    full: bool = False,
    robust: bool = False,
    machines: int | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Settlement:
    """Returns a map of which arm is best, as ``mmscale settle`` does.

    Args:
        study: The study or script by name, or a file (``./mine.mms``).
        knobs: What moves, one to six: ``cpus``, parameters of the study or costs of the profile,
            each with its range: ``{"cpus": (4, 128), "pause": ("100us", "100ms")}``.
        output: The folder for runs and results. A call with the same folder continues; without it
            the runs are lost.
        metric: What arms are compared by; the first headline if not given.
        matters: Arms that differ by less than this, in percent, are equally good.
        runs: Points times arms times seeds.
        jobs: Runs at a time.
        full: Runs of full length; quick ones if not given.
        robust: Also run places near the boundary on machines whose costs are drawn from their
            ranges.
        machines: With ``robust``: machines at each place.
        progress: Show progress.
        **options: ``cpus``, ``shape``, ``profile``, ``hz``, ``arm``, ``policy``, ``linux``,
            ``set``, ``cost``, ``seeds``, ``seed`` as for :func:`run`, with one value each but for
            arms.

    Raises:
        CallError: The call was wrong; the message says what to do.
        RunError: Too few points have a value.
    """
    if not isinstance(knobs, Mapping):
        raise CallError(f"knobs is {knobs!r}: give a dictionary, as in {{'cpus': (4, 128)}}")
    words = [f"--knob={name}={_range(name, of)}" for name, of in knobs.items()]
    chosen = {"full": full, "robust": robust}
    words += [f"--{name}" for name, value in chosen.items() if switch(name, value)]
    values = {"metric": metric, "matters": matters, "runs": runs, "jobs": jobs, "machines": machines}
    words += [f"--{name}={value}" for name, value in values.items() if value is not None]
    with tempfile.TemporaryDirectory() as own:
        folder = Path(own if output is None else output)
        words += ["--format=json", f"--output={folder}"]
        with Progress(progress) as bar:
            answer = call(["settle", *arguments(**options), *words, *studies(study)], told=bar)
        answer.check()
        document = answer.document("schema")
        return Settlement(document, read_text(folder / "settle.txt"), read_text(folder / "settle.svg"))


def _range(name: str, given: Range) -> str:
    """Returns a range in the words of the command line."""
    if isinstance(given, str):
        return given
    parts = list(given) if isinstance(given, Sequence) else []
    if len(parts) not in (2, 3):
        raise CallError(f"the range of {name} is {given!r}: give its two ends, as in (4, 128)")
    return f"{parts[0]}..{parts[1]}" + "".join(f":{scale}" for scale in parts[2:])
