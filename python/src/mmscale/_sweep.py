"""Sweeps: many single runs, on this computer or on others, each kept under a key of its content.

The program plans a sweep: it checks everything, and gives each run a key over all that its result
depends on. A run is a call of ``mmscale sweep - --one KEY -o FOLDER``, which executes it under a
lock and writes its document by a rename. So a run is executed once, whatever is killed, and the
same call of :func:`sweep` continues.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any, Union

from ._binary import call, failure, find_binary
from ._errors import CallError, RunError, SweepError, need, switch, whole
from ._results import Result, Results, _Tables, parsed, read_text
from ._run import bar, wanted
from ._table import Columns, arrow, value_columns, varying

#: A sweep: options of ``mmscale run`` by name, each with one value or several; or the path of a
#: TOML or JSON file with them.
Spec = Union[Mapping[str, Any], str, "os.PathLike[str]"]
#: A run: its key, and the spec that has only this run.
Task = Mapping[str, Any]


def _given(spec: Spec) -> tuple[str, str | None]:
    """Returns the argument and the standard input by which the program gets a spec."""
    if isinstance(spec, (str, os.PathLike)):
        return os.fspath(spec), None
    if not isinstance(spec, Mapping):
        raise CallError(f"the spec is {spec!r}: give a dictionary, or the path of a file")

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(key): plain(one) for key, one in value.items()}
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if isinstance(value, (str, bool, int, float)) or value is None:
            return value
        return [plain(one) for one in value]

    try:
        return "-", json.dumps({k: plain(value) for k, value in spec.items() if value is not None})
    except TypeError as why:
        raise CallError(f"a value of the spec is no number, text or list of them: {why}") from why


def plan(spec: Spec) -> list[Task]:
    """Returns the runs of a sweep, each with its key; nothing is executed.

    Raises:
        CallError: The spec is wrong; the message says what to do.
    """
    path, given = _given(spec)
    answer = call(["sweep", "--plan", "--", path], input=given)
    answer.check()
    return answer.document("runs")["runs"]


def run_tasks(tasks: Sequence[Task], folder: str, binary: str | None = None) -> list[Any]:
    """Executes runs one by one, and returns for each whether it was executed, or its error.

    This is what a worker does. It needs the folder of the sweep, and a program ``mmscale`` with the
    sources of the one that planned: ``binary`` where that exists, else the worker's own.
    """
    program = binary if binary and os.access(binary, os.X_OK) else find_binary()
    done: list[Any] = []
    for task in tasks:
        args = ["sweep", "-", "--one", task["key"], "--output", folder]
        answer = call(args, binary=program, input=json.dumps(task["spec"]))
        if answer.returncode == 0:
            done.append(answer.document("executed")["executed"])
        else:
            done.append(failure(answer.returncode, answer.stderr))
    return done


def _is_lost(why: BaseException) -> bool:
    """Returns whether a run ended with its process, and may succeed in another one."""
    if isinstance(why, RunError):
        return why.returncode < 0
    return not isinstance(why, CallError)


class Sweep(_Tables):
    """The results of a sweep. Tables and pictures are over its finished runs."""

    def __init__(self, spec: Spec, folder: Any, tasks: Sequence[Task], executed: int = 0):
        self.folder, self.tasks, self.executed = Path(folder), list(tasks), executed
        self._spec = spec
        self._runs: Results | None = None
        self._found: Results | None = None

    @property
    def runs(self) -> Results:
        """The finished runs, each with one arm and one seed."""
        if self._runs is None:
            self._runs = Results(Result(self._kept(task, file)) for task, file in self._finished())
        return self._runs

    @staticmethod
    def _kept(task: Task, file: Path) -> Mapping[str, Any]:
        """Returns the document of a finished run; that of another run is an error."""
        document = parsed(file, read_text(file))
        arms = [(arm.get("arm"), arm.get("seeds")) for arm in document.get("arms", [])]
        same = all(document.get(name) == task[name] for name in ("study", "profile", "cpus", "hz"))
        if not same or arms != [(task["arm"], [task["seed"]])]:
            raise CallError(f"`{file}` is the document of another run: the same sweep replaces it")
        return document

    def _finished(self) -> Iterator[tuple[Task, Path]]:
        return ((task, file) for task, file in self._files() if file.exists())

    def _files(self) -> Iterator[tuple[Task, Path]]:
        for task in self.tasks:
            yield task, self.folder / "runs" / f"{task['key']}.json"

    @property
    def finished(self) -> dict[str, str]:
        """The fingerprints of finished runs by key."""
        return {task["key"]: self._kept(task, file)["fingerprint"] for task, file in self._finished()}

    @property
    def missing(self) -> list[Task]:
        """The runs without a result."""
        return [task for task, file in self._files() if not file.exists()]

    @property
    def results(self) -> Results:
        """The points: one result for each study, machine and set of parameters.

        They have metrics, CPU time and locks of all arms and seeds. The program gathers them.
        """
        if self._found is None:
            path, given = _given(self._spec)
            args = ["sweep", "--collect", "--format=json", f"--output={self.folder}", "--", path]
            answer = call(args, input=given)
            answer.check()
            self._found = Results(map(Result, answer.documents("schema", "arms")))
        return self._found

    @property
    def _documents(self) -> list[Mapping[str, Any]]:  # type: ignore[override]
        return [result.document for result in self.results]

    def columns(self) -> Columns:
        """Returns the values of all runs, with key and fingerprint of each, as columns."""
        documents = [run.document for run in self.runs]
        return _columns(documents, self._keys(), varying(documents))

    def _keys(self) -> list[str]:
        return [task["key"] for task, _ in self._finished()]

    def frame(self) -> Any:
        """Returns a tidy data frame of pandas: a row for each run and metric."""
        return need("pandas", "frames").DataFrame(self.columns())

    def arrow(self) -> Any:
        """Returns the same rows as a table of Arrow."""
        return arrow(self.columns())

    def write(self, path: Any, runs_per_part: int | None = None) -> Path:
        """Writes the values of all runs as Parquet: one file, or a folder of parts.

        With ``runs_per_part`` the path is a folder with a part for so many runs, which DuckDB reads
        as ``'folder/*.parquet'``. Files are renamed when they are whole.
        """
        parquet, path = need("pyarrow.parquet", "frames"), Path(path)
        if runs_per_part is None:
            return _renamed(path, lambda to: parquet.write_table(self.arrow(), to))
        documents, keys = [run.document for run in self.runs], self._keys()
        path.mkdir(parents=True, exist_ok=True)
        # All parts have the columns of all runs, with their types.
        params, schema = varying(documents), self.arrow().schema
        starts = range(0, len(documents), runs_per_part)
        for number, start in enumerate(starts):
            part = slice(start, start + runs_per_part)
            rows = arrow(_columns(documents[part], keys[part], params)).cast(schema)
            _renamed(
                path / f"part-{number:05}.parquet",
                lambda to, rows=rows: parquet.write_table(rows, to),
            )
        for old in path.glob("part-*.parquet"):
            if int(old.stem.removeprefix("part-")) >= len(starts):
                old.unlink()
        return path

    def __repr__(self) -> str:
        missing = len(self.missing)
        what = f"{len(self.tasks)} runs, {self.executed} executed now"
        return f"sweep in {self.folder}: {what}" + (f", {missing} missing" if missing else "")

    def _repr_html_(self) -> str:
        return f"<p>{self!r}</p>{self.results._repr_html_()}"


def _columns(
    documents: Sequence[Mapping[str, Any]], keys: Sequence[str], params: Sequence[str]
) -> Columns:
    """Returns the values of documents of single runs, with what identifies each."""
    columns = value_columns(documents, params)
    rows = [sum(len(arm["metrics"]) for arm in document["arms"]) for document in documents]

    def repeated(values: Iterable[Any]) -> list[Any]:
        return [value for value, number in zip(values, rows) for _ in range(number)]

    columns["fingerprint"] = repeated(document["fingerprint"] for document in documents)
    columns["key"] = repeated(keys)
    columns["profile_hash"] = repeated(document.get("profile_hash") for document in documents)
    columns["commit"] = repeated(_sources(document["build"]) for document in documents)
    return columns


def _sources(build: Mapping[str, Any]) -> str:
    changes = build.get("changes")
    return build["commit"] + (f"+{changes}" if changes else "")


def _renamed(path: Path, write: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        write(new)
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
    return path


def sweep(
    spec: Spec,
    executor: Any = None,
    *,
    folder: Any = "sweep",
    jobs: int | None = None,
    chunk: int = 1,
    retries: int = 2,
    parquet: bool = True,
    progress: bool | None = None,
) -> Sweep:
    """Executes the runs of a sweep that its folder does not have, and returns all results.

    Args:
        spec: Options of :func:`mmscale.run` by name (study, profile, cpus, hz, shape, arm, policy,
            linux, set, cost, seeds, seed, quick, check), each with one value or several; or the path of
            a TOML or JSON file with them.
        executor: Any executor of ``concurrent.futures``, a client of Dask, or an executor of
            submitit; processes on this computer if not given.
        folder: Where results are kept. All workers must see it.
        jobs: How many runs at a time on this computer; as many as it has CPUs if not given.
        chunk: How many runs a worker gets at a time.
        retries: How often a run whose process was killed is started again.
        parquet: Write all values to ``results.parquet`` in the folder at the end.
        progress: Show a bar on standard error; on terminals and in notebooks if not given.

    Raises:
        CallError: The spec is wrong; nothing was started.
        SweepError: Some runs failed. All others are kept, and its ``sweep`` has them.
    """
    chunk, retries = whole("chunk", chunk, 1), whole("retries", retries, 0)
    jobs = _cpus() if jobs is None else whole("jobs", jobs, 1)
    switch("parquet", parquet)
    tasks = plan(spec)
    folder = Path(folder).resolve()
    found = Sweep(spec, folder, tasks)
    left = found.missing
    parts = [left[at : at + chunk] for at in range(0, len(left), chunk)]
    shown = bar(len(tasks), "sweep") if wanted(progress) else None
    own = executor is None
    if own:
        # Each run is a process of its own; threads only wait for them.
        executor = futures.ThreadPoolExecutor(jobs)
    try:
        if shown is not None:
            shown.update(len(tasks) - len(left))
        driver = _Driver(_submitter(executor), str(folder), retries)
        failed = driver.drive(parts, lambda number: shown is not None and shown.update(number))
    finally:
        if shown is not None:
            shown.close()
        if own:
            executor.shutdown(cancel_futures=True)
    found.executed = driver.executed
    if parquet and len(found.missing) < len(tasks):
        try:
            found.write(folder / "results.parquet")
        except ImportError:
            pass  # The documents are there; Parquet needs pyarrow.
    if failed:
        what = f"{len(failed)} of {len(tasks)} runs have no result: {failed[0]}"
        raise SweepError(f"{what}; the same call runs only those that are missing", found)
    return found


def _cpus() -> int:
    """Returns the CPUs of this computer that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _submitter(executor: Any) -> Any:
    """Returns an object whose ``submit`` returns a future, for all kinds of executors."""
    if hasattr(executor, "get_executor"):  # A client of Dask.
        # Dask takes equal calls for one unless they are impure.
        return executor.get_executor(pure=False)
    if not hasattr(executor, "submit"):
        raise CallError(f"{executor!r} is no executor: it has no method `submit`")
    return executor


class _Driver:
    """Hands runs to an executor, and starts those again whose process was killed."""

    def __init__(self, executor: Any, folder: str, retries: int):
        self.executor, self.folder, self.retries = executor, folder, retries
        self.binary, self.executed = find_binary(), 0
        self.waiting: dict[Any, tuple[list[Task], int]] = {}
        self.failed: list[BaseException] = []

    def submit(self, tasks: list[Task], tries: int) -> None:
        """Hands out runs; where the executor itself is lost, they have failed."""
        try:
            future = self.executor.submit(run_tasks, tasks, self.folder, self.binary)
        except (futures.BrokenExecutor, RuntimeError) as why:
            self.failed += [why] * len(tasks)
        else:
            self.waiting[future] = (tasks, tries)

    def drive(self, parts: Iterable[list[Task]], finished: Any) -> list[BaseException]:
        """Returns the errors of runs without a result."""
        import contextlib

        # submitit hands all jobs of a batch to Slurm as one array.
        batch = getattr(self.executor, "batch", None)
        with batch() if callable(batch) else contextlib.nullcontext():
            for part in parts:
                self.submit(part, 0)
        try:
            while self.waiting:
                for future in self._some_done():
                    finished(self._collect(future))
        except BaseException:
            for future in self.waiting:
                future.cancel()
            raise
        return self.failed

    def _some_done(self) -> list[Any]:
        waiting = list(self.waiting)
        if all(isinstance(future, futures.Future) for future in waiting):
            return list(futures.wait(waiting, return_when=futures.FIRST_COMPLETED).done)
        done = [future for future in waiting if future.done()]
        if not done:
            time.sleep(0.1)
        return done

    def _collect(self, future: Any) -> int:
        """Takes the outcome of a future, and returns how many of its runs have one now."""
        tasks, tries = self.waiting.pop(future)
        try:
            outcomes = future.result()
        except Exception as why:  # The worker was lost, with all that it had.
            outcomes = [why] * len(tasks)
        again, settled = [], 0
        for task, outcome in zip(tasks, outcomes):
            if isinstance(outcome, CallError):
                raise outcome
            if isinstance(outcome, BaseException):
                if _is_lost(outcome) and tries < self.retries:
                    again.append(task)
                    continue
                self.failed.append(outcome)
            else:
                self.executed += bool(outcome)
            settled += 1
        if again:
            self.submit(again, tries + 1)
        return settled
