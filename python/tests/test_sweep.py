"""Sweeps: keys, executors, kills, Parquet.

A program that stands before the real one notes which runs it executes. So the tests see what was
executed twice.
"""

from __future__ import annotations

import collections
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from concurrent import futures

import pytest

import mmscale

#: Twelve runs of some milliseconds.
SPEC = dict(
    study="churn",
    profile=["x86-2", "arm64-8"],
    policy=["lru=stock", "lru=lazy"],
    seeds=3,
    quick=True,
)
OPTIONS = dict(progress=False)


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> mmscale.Sweep:
    """The sweep on local processes."""
    return mmscale.sweep(SPEC, folder=tmp_path_factory.mktemp("reference"), **OPTIONS)


@pytest.fixture
def noted(tmp_path, monkeypatch):
    """A program that notes the key of each run that begins, and may wait before it."""
    program, notes = mmscale.find_binary(), tmp_path / "notes"
    notes.touch()
    path = tmp_path / "noting"
    path.write_text(
        "#!/bin/sh\n"
        f'if [ "$3" = --one ]; then echo "$4" >> {notes}; sleep ${{NOTED_WAIT:-0}}; fi\n'
        f'exec {program} "$@"\n'
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("MMSCALE_BIN", str(path))
    return lambda: collections.Counter(notes.read_text().split())


def wait_for(what, seconds=60.0):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.02)


def test_a_plan_has_a_key_for_each_run_and_a_spec_that_has_only_it():
    runs = mmscale.plan(SPEC)
    assert len({run["key"] for run in runs}) == len(runs) == 12
    assert [run["arm"] for run in runs[:6]] == ["lru=stock"] * 3 + ["lru=lazy"] * 3
    assert [mmscale.plan(run["spec"])[0]["key"] for run in runs] == [run["key"] for run in runs]
    assert all(len(mmscale.plan(run["spec"])) == 1 for run in runs)
    other = mmscale.plan({**SPEC, "set": {"pages": 2}})
    assert not {run["key"] for run in runs} & {run["key"] for run in other}
    more = mmscale.plan({**SPEC, "seeds": 4})
    assert {run["key"] for run in runs} < {run["key"] for run in more}


def test_a_spec_may_be_a_file_and_a_wrong_one_is_refused(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text("study = 'churn'\nprofile = 'x86-2'\narm = 'lazy'\nseeds = 2\nquick = true\n")
    assert [run["seed"] for run in mmscale.plan(path)] == [1, 2]
    for wrong, why in [
        ({}, "names no study"),
        ({"study": "chrun"}, "no study or script named `chrun`"),
        ({"study": "churn", "polcy": "lru=lazy"}, "unknown field `polcy`"),
        ({"study": "churn", "policy": "lru=lzy"}, "lzy"),
        ({"study": "churn", "shape": "round"}, "known: keep, fill, flat"),
        ({"study": "churn", "cpus": {"from": 1}}, "a value or a list of values"),
    ]:
        with pytest.raises(mmscale.CallError, match=why):
            mmscale.sweep(wrong, folder=tmp_path / "none", **OPTIONS)
    with pytest.raises(mmscale.CallError, match="no executor"):
        mmscale.sweep(SPEC, executor=3, folder=tmp_path / "none", **OPTIONS)


def test_a_second_call_executes_nothing(reference, tmp_path):
    assert (reference.executed, reference.missing) == (12, [])
    again = mmscale.sweep(SPEC, folder=reference.folder, **OPTIONS)
    assert again.executed == 0 and again.finished == reference.finished
    shutil.copytree(reference.folder, tmp_path / "more")
    more = mmscale.sweep({**SPEC, "seeds": 4}, folder=tmp_path / "more", **OPTIONS)
    assert more.executed == 4 and more.finished.items() > reference.finished.items()


def test_a_run_of_a_sweep_is_a_run(reference):
    for profile in SPEC["profile"]:
        run = mmscale.run("churn", profile=profile, policy="lru=lazy", seeds=3, quick=True)
        arm = run[0].document["arms"][1]
        point = reference.results.where(profile=profile)[0]
        gathered = point.document["arms"][1]
        assert (gathered["arm"], gathered["seeds"]) == (arm["arm"], arm["seeds"])
        assert gathered["metrics"] == arm["metrics"], "values, means and intervals"
        assert gathered["locks"] == arm["locks"] and gathered["policies"] == arm["policies"]


def test_results_of_a_sweep_are_results(reference):
    assert len(reference.results) == 2 and len(reference.runs) == 12
    changes = reference.compare()
    assert {(row["profile"], row["arm"], row["pairs"]) for row in changes} == {
        ("x86-2", "lru=lazy", 3),
        ("arm64-8", "lru=lazy", 3),
    }
    data = reference.to_xarray()
    assert data.sizes["profile"] == 2 and data.sizes["seed"] == 3
    assert "12 runs" in repr(reference) and "arm64-8" in reference._repr_html_()
    frame = reference.frame()
    runs = frame[frame.metric == "ops_per_s"]
    assert dict(zip(runs.key, runs.fingerprint)) == reference.finished


def test_parquet_is_one_file_or_parts_that_duckdb_reads(reference, tmp_path):
    duckdb = pytest.importorskip("duckdb")
    rows = len(reference.frame())
    parts = reference.write(tmp_path / "parts", runs_per_part=5)
    assert sorted(path.name for path in parts.iterdir()) == [
        f"part-0000{number}.parquet" for number in range(3)
    ]
    for files in (reference.folder / "results.parquet", parts / "*.parquet"):
        query = f"select count(*), count(distinct key), avg(value) from '{files}'"
        ((count, keys, mean),) = duckdb.sql(query).fetchall()
        assert (count, keys) == (rows, 12) and mean == pytest.approx(reference.frame().value.mean())
    reference.write(parts, runs_per_part=12)
    assert [path.name for path in parts.iterdir()] == ["part-00000.parquet"]


def test_the_command_line_does_the_same(reference, tmp_path):
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(SPEC))
    args = [mmscale.find_binary(), "sweep", spec, "-o", tmp_path / "out", "--jobs", "2"]
    done = subprocess.run(args, capture_output=True, text=True, check=True)
    assert "12 runs, 0 of them finished before" in done.stderr
    found = mmscale.sweep(SPEC, folder=tmp_path / "out", **OPTIONS)
    assert found.executed == 0 and found.finished == reference.finished
    assert (tmp_path / "out" / "results.csv").read_text().count(",ops_per_s,") == 12


def test_processes_and_chunks_give_the_same(reference, tmp_path):
    with futures.ProcessPoolExecutor(2) as pool:
        found = mmscale.sweep(SPEC, pool, folder=tmp_path, chunk=5, **OPTIONS)
    assert found.finished == reference.finished and found.executed == 12


def test_a_failed_run_is_named_and_all_others_are_kept(tmp_path, monkeypatch):
    program, broken = mmscale.find_binary(), mmscale.plan(SPEC)[4]["key"]
    path = tmp_path / "failing"
    path.write_text(
        f'#!/bin/sh\nif [ "$4" = {broken} ]; then echo "error: no" >&2; exit 1; fi\n'
        f'exec {program} "$@"\n'
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("MMSCALE_BIN", str(path))
    with pytest.raises(mmscale.SweepError, match="1 of 12 runs have no result: no;") as caught:
        mmscale.sweep(SPEC, folder=tmp_path / "out", **OPTIONS)
    assert [run["key"] for run in caught.value.sweep.missing] == [broken]
    monkeypatch.setenv("MMSCALE_BIN", program)
    assert mmscale.sweep(SPEC, folder=tmp_path / "out", **OPTIONS).executed == 1


def test_a_run_of_another_program_is_refused(tmp_path):
    run = {**mmscale.plan(SPEC)[0], "key": "0" * 16}
    from mmscale._sweep import run_tasks

    (outcome,) = run_tasks([run], str(tmp_path))
    assert isinstance(outcome, mmscale.CallError) and "differs from that of the plan" in str(
        outcome
    )


def children(pid):
    """Returns the processes that the threads of a process have started, and theirs."""
    own = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as file:
            own += [int(child) for child in file.read().split()]
    return own + [other for child in own for other in children(child)]


def test_a_killed_run_is_started_again(reference, tmp_path, noted, monkeypatch):
    monkeypatch.setenv("NOTED_WAIT", "0.2")
    with futures.ThreadPoolExecutor(1) as thread:
        sweep = thread.submit(mmscale.sweep, SPEC, folder=tmp_path / "out", jobs=1, **OPTIONS)
        wait_for(lambda: len(noted()) == 3)
        victim = next(pid for pid in children(os.getpid()) if b"--one" in cmdline(pid))
        os.kill(victim, signal.SIGKILL)
        found = sweep.result()
    assert found.finished == reference.finished
    assert sum(noted().values()) == 13 and len(noted()) == 12, "only the killed run began twice"


def cmdline(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def test_a_killed_worker_breaks_the_pool_and_the_next_call_continues(reference, tmp_path, noted):
    with futures.ProcessPoolExecutor(1) as pool:
        with pytest.raises(mmscale.SweepError, match="same call runs only those"):
            with futures.ThreadPoolExecutor(1) as thread:
                sweep = thread.submit(mmscale.sweep, SPEC, pool, folder=tmp_path / "out", **OPTIONS)
                wait_for(lambda: len(noted()) >= 3)
                for worker in list(pool._processes):
                    os.kill(worker, signal.SIGKILL)
                sweep.result()
    found = mmscale.sweep(SPEC, folder=tmp_path / "out", **OPTIONS)
    assert found.finished == reference.finished
    twice = [key for key, times in noted().items() if times > 1]
    assert len(noted()) == 12 and len(twice) <= 1, "what was finished is not executed again"


def test_a_killed_driver_loses_nothing(reference, tmp_path, noted):
    code = (
        f"import mmscale; mmscale.sweep({SPEC!r}, folder={str(tmp_path / 'out')!r}, "
        "jobs=2, progress=False)"
    )
    env = {**os.environ, "NOTED_WAIT": "0.2", "PYTHONPATH": os.pathsep.join(sys.path)}
    driver = subprocess.Popen([sys.executable, "-c", code], env=env, start_new_session=True)
    runs = tmp_path / "out" / "runs"
    wait_for(lambda: len(list(runs.glob("*.json"))) >= 4)
    driver.kill()
    driver.wait()
    found = mmscale.sweep(SPEC, folder=tmp_path / "out", **OPTIONS)
    assert found.finished == reference.finished
    assert found.executed <= 8 and len(noted()) == 12
    # The two runs in progress went on without a driver; the second call waited for them.
    twice = [key for key, times in noted().items() if times > 1]
    assert len(twice) <= 2
    assert not list(runs.glob("*.lock")) and not list(runs.glob(".*"))


def test_a_killed_command_line_continues(reference, tmp_path):
    spec = tmp_path / "spec.json"
    # Some seconds of runs, one at a time.
    slow = {**SPEC, "profile": "arm64-72", "seeds": 4}
    spec.write_text(json.dumps(slow))
    args = [mmscale.find_binary(), "sweep", str(spec), "-o", str(tmp_path / "out"), "--jobs", "1"]
    first = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    runs = tmp_path / "out" / "runs"
    wait_for(lambda: len(list(runs.glob("*.json"))) >= 2)
    first.kill()
    assert first.wait() == -signal.SIGKILL
    kept = {path.name: path.stat().st_mtime_ns for path in runs.glob("*.json")}
    assert 2 <= len(kept) < 8
    done = subprocess.run(args, capture_output=True, text=True, check=True)
    assert f"8 runs, {len(kept)} of them finished before" in done.stderr
    now = {path.name: path.stat().st_mtime_ns for path in runs.glob("*.json")}
    assert len(now) == 8 and kept.items() < now.items(), "kept documents are not written again"


def test_dask_gives_the_same_and_survives_a_killed_worker(reference, tmp_path, noted, monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setenv("NOTED_WAIT", "0.1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        with futures.ThreadPoolExecutor(1) as thread:
            sweep = thread.submit(mmscale.sweep, SPEC, client, folder=tmp_path / "out", **OPTIONS)
            wait_for(lambda: len(noted()) >= 4)
            os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
            found = sweep.result()
    assert found.finished == reference.finished
    assert len(noted()) == 12


def test_submitit_gives_the_same(reference, tmp_path, monkeypatch):
    submitit = pytest.importorskip("submitit")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    executor = submitit.LocalExecutor(folder=tmp_path / "jobs")
    executor.update_parameters(timeout_min=2)
    found = mmscale.sweep(SPEC, executor, folder=tmp_path / "out", chunk=6, **OPTIONS)
    assert found.finished == reference.finished and found.executed == 12
