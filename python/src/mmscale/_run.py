"""Runs of studies: the options of ``mmscale run`` as arguments."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Union

from ._binary import Answer, call, failure
from ._errors import CallError, RunError, switch
from ._results import ROBUST_SCHEMA, Result, Results, Robustness, is_run

#: One value, or several of them.
Many = Union[str, int, float, Sequence[Any]]


def several(value: Many | None) -> list[Any]:
    """Returns one value or several as a list; ``None`` is none."""
    if value is None:
        return []
    if isinstance(value, (str, int, float, os.PathLike)):
        return [value]
    return list(value)


def written(value: Any) -> str:
    """Returns a value as the program reads it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def joined(value: Many) -> str:
    """Returns one value or several with commas between them."""
    return ",".join(written(one) for one in several(value))


def studies(study: Many) -> list[str]:
    """Returns the words that name studies; behind them the program reads no options."""
    words = [written(one) for one in several(study)]
    if not words:
        raise CallError("no study is named; mmscale.studies has all")
    return ["--", *words]


def arguments(
    *,
    cpus: Many | None = None,
    hz: Many | None = None,
    shape: str | None = None,
    profile: Any | None = None,
    arm: Many | None = None,
    policy: Many | None = None,
    linux: str | None = None,
    set: Mapping[str, Many] | None = None,
    cost: Mapping[str, Many] | None = None,
    seeds: int | None = None,
    seed: int | None = None,
) -> list[str]:
    """Returns the options that ``run`` and ``robust`` share as words of a command line."""
    if set is not None and not isinstance(set, Mapping):
        raise CallError(f"set is {set!r}: give a dictionary, as in set={{'pages': 1024}}")
    plain = {"cpus": cpus, "hz": hz, "arm": arm}
    words = [f"--{name}={joined(value)}" for name, value in plain.items() if value is not None]
    single = {"shape": shape, "profile": profile, "linux": linux, "seeds": seeds, "seed": seed}
    words += [f"--{name}={value}" for name, value in single.items() if value is not None]
    words += [f"--policy={one}" for one in several(policy)]
    words += [f"--set={name}={joined(value)}" for name, value in (set or {}).items()]
    words += [f"--cost={name}={joined(value)}" for name, value in (cost or {}).items()]
    return words


def run(
    study: Many,
    *,
    cpus: Many | None = None,
    policy: Many | None = None,
    arm: Many | None = None,
    set: Mapping[str, Many] | None = None,
    cost: Mapping[str, Many] | None = None,
    profile: Many | None = None,
    hz: Many | None = None,
    shape: str | None = None,
    linux: str | None = None,
    seeds: int | None = None,
    seed: int | None = None,
    on: str | None = None,
    quick: bool = False,
    check: bool = False,
    blame: bool = False,
    hold: str | None = None,
    output: Any | None = None,
    replace: bool = False,
    progress: bool | None = None,
) -> Results:
    """Runs studies and returns their results, as ``mmscale run`` does.

    Args:
        study: Studies or scripts by name, or files (``./mine.mms``).
        cpus: CPUs of the machine, 1 to 4096; several values make a sweep.
        policy: Arms with these policies (``"lru=lazy"``), added to the study's first arm or to
            those of ``arm``. ``"lru=stock"`` equals that first arm where it has the same policies.
        arm: Arms of the study, starting with the one to compare with; all if not given.
        set: Parameters of the study; a list of values makes a sweep.
        cost: Other values of costs of the profile, within their ranges (``{"handoff_fixed_ns": 110}``);
            a list of values makes a sweep.
        profile: The simulated machine: a built-in profile or a file. Several run one by one.
        hz: Timer interrupts a second.
        shape: How CPUs are grouped if ``cpus`` is not the profile's: ``keep``, ``fill``, ``flat``.
        linux: The version of Linux whose mechanisms are simulated.
        seeds: Number of seeds; 7 if not given, 2 with ``quick``.
        seed: The first seed.
        on: ``sim``, ``threads`` or ``live``.
        quick: Fewer seeds and shorter runs.
        check: Run with checkers.
        blame: Record what holders of locks did while others waited.
        hold: ``CLASS=FACTOR``: holds of spin locks of a class take FACTOR times as long.
        output: A folder for the documents, as text and as JSON.
        replace: Replace documents of the same names there.
        progress: Show progress on standard error; on terminals and in notebooks if not given.

    Raises:
        CallError: The call was wrong; the message says what to do.
        RunError: A run failed. Its ``results`` has what was complete.
    """
    options: dict[str, Any] = {
        "cpus": cpus,
        "hz": hz,
        "shape": shape,
        "arm": arm,
        "policy": policy,
        "linux": linux,
        "set": set,
        "cost": cost,
        "seeds": seeds,
        "seed": seed,
    }
    switches = {"quick": quick, "check": check, "blame": blame}
    words = [f"--{name}" for name, chosen in switches.items() if switch(name, chosen)]
    words += ["--replace"] if switch("replace", replace) else []
    words += [f"--{name}={value}" for name, value in {"on": on, "hold": hold}.items() if value]
    results: list[Result] = []
    for machine in several(profile) or [None]:
        args = ["run", *arguments(profile=machine, **options), *words]
        with tempfile.TemporaryDirectory() as own:
            folder = str(output) if output is not None else own
            args += ["--format=json", f"--output={folder}", *studies(study)]
            with Progress(progress) as bar:
                answer = call(args, told=bar)
            results += _results(answer, Path(folder))
        if answer.returncode != 0:
            why = failure(answer.returncode, answer.stderr)
            if isinstance(why, RunError):
                why.results = Results(results)
            raise why
    return Results(results)


def _results(answer: Answer, folder: Path) -> list[Result]:
    """Returns the documents that a call printed, with the texts that it wrote."""
    texts: dict[str, str] = {}
    for json_file, text_file in re.findall(r"^wrote (.*) and (.*)$", answer.stderr, re.M):
        try:
            document = Path(json_file).read_text("utf-8").rstrip("\n")
            texts[document] = Path(text_file).read_text("utf-8")
        except OSError:
            continue
    lines = [line for line in answer.stdout.split("\n") if line]
    found = [
        Result(document, texts.get(line))
        for line, document in zip(lines, answer.documents("schema"))
        if is_run(document)
    ]
    if answer.returncode == 0 and not found:
        raise answer.unexpected(answer.stdout)
    return found


def robust(
    study: str,
    *,
    machines: int | None = None,
    full: bool = False,
    cache: Any | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Robustness:
    """Moves every cost of the machine, and returns what the conclusions depend on.

    Args:
        study: The study.
        machines: How many machines to draw, each with all costs from their ranges.
        full: Runs of full length; quick ones if not given.
        cache: Where results of runs are kept.
        progress: Show progress.
        **options: ``cpus``, ``shape``, ``profile``, ``hz``, ``arm``, ``policy``, ``linux``,
            ``set``, ``cost``, ``seeds``, ``seed`` as for :func:`run`.
    """
    words = ["--full"] if switch("full", full) else []
    values = {"machines": machines, "cache": cache}
    words += [f"--{name}={value}" for name, value in values.items() if value is not None]
    with Progress(progress) as bar:
        args = ["robust", *arguments(**options), *words, "--format=json", *studies(study)]
        answer = call(args, told=bar)
    answer.check()
    documents = answer.documents("schema")
    found = [one for one in documents if str(one["schema"]).startswith(ROBUST_SCHEMA)]
    if len(found) != 1:
        raise CallError(f"{len(found)} analyses: name one study and one value of each parameter")
    return Robustness(found[0])


class Progress:
    """A bar on standard error for the lines that the program tells."""

    _LINE = re.compile(r"^(\S+): (\d+) of (\d+) runs done$")
    _TITLE = re.compile(r"^(?:\[(\d+)/(\d+)\] )?(\S+ on .*) \((\d+) runs?\)$")

    def __init__(self, shown: bool | None):
        self._shown, self._bar = wanted(shown), None

    def __enter__(self) -> Callable[[str], None]:
        return self._told

    def __exit__(self, *_: Any) -> None:
        if self._bar is not None:
            self._bar.close()

    def _told(self, line: str) -> None:
        title, done = self._TITLE.match(line), self._LINE.match(line)
        if not self._shown or not (title or done):
            return
        if title:
            self.__exit__()
            self._bar = bar(int(title[4]), title[3])
        elif self._bar is not None:
            self._bar.update(int(done[2]) - self._bar.n)


def wanted(shown: bool | None) -> bool:
    """Returns whether progress is shown: as chosen, or on terminals and in notebooks."""
    return (sys.stderr.isatty() or "ipykernel" in sys.modules) if shown is None else shown


def bar(total: int, title: str) -> Any:
    """Returns a progress bar; ``None`` without the library tqdm."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(total=total, desc=title, unit="run", leave=False)
