"""Where the program is found, and what its errors become."""

from __future__ import annotations

import pickle
import stat
import subprocess
import sys

import pytest

import mmscale
from mmscale import _binary


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_the_environment_chooses_the_program(tmp_path, monkeypatch):
    chosen = script(tmp_path / "mine", "echo mmscale 9.9")
    monkeypatch.setenv("MMSCALE_BIN", str(chosen))
    assert mmscale.find_binary() == str(chosen)
    assert mmscale.version() == "9.9"
    monkeypatch.setenv("MMSCALE_BIN", str(tmp_path / "gone"))
    with pytest.raises(mmscale.BinaryNotFound, match="gone"):
        mmscale.find_binary()


def test_a_script_that_starts_this_package_is_not_the_program(tmp_path, monkeypatch):
    monkeypatch.delenv("MMSCALE_BIN")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(_binary, "__file__", str(tmp_path / "a" / "b" / "_binary.py"))
    monkeypatch.setattr(_binary.sysconfig, "get_path", lambda *_, **__: str(tmp_path / "scripts"))
    script(tmp_path / "mmscale", "exit 0")
    with pytest.raises(mmscale.BinaryNotFound, match="MMSCALE_BIN"):
        mmscale.find_binary()


def test_a_wrong_call_has_the_message_of_the_program():
    with pytest.raises(mmscale.CallError, match="no study or script named `chrun`"):
        mmscale.run("chrun")
    with pytest.raises(mmscale.CallError, match="allowed: --seeds 1 to 10000"):
        mmscale.run("churn", seeds=0)
    with pytest.raises(mmscale.CallError, match="unexpected|invalid value"):
        mmscale.run("churn", shape="round")
    with pytest.raises(ValueError, match="mmscale.studies has all"):
        mmscale.run([])


def test_a_failed_run_keeps_what_was_complete(tmp_path, monkeypatch):
    program = mmscale.find_binary()
    lines = f'{program} "$@" || exit 9; echo "error: a run failed" >&2; exit 1'
    monkeypatch.setenv("MMSCALE_BIN", str(script(tmp_path / "failing", lines)))
    with pytest.raises(mmscale.RunError, match="^a run failed$") as caught:
        mmscale.run("churn", cpus=2, shape="fill", quick=True, seeds=1, arm="stock")
    assert [result.cpus for result in caught.value.results] == [2]


def test_a_killed_program_is_named_and_survives_a_pickle(tmp_path, monkeypatch):
    monkeypatch.setenv("MMSCALE_BIN", str(script(tmp_path / "killed", "kill -9 $$")))
    with pytest.raises(mmscale.RunError, match="signal 9") as caught:
        mmscale.run("churn")
    copied = pickle.loads(pickle.dumps(caught.value))
    assert (copied.returncode, str(copied)) == (-9, str(caught.value))


def test_the_module_is_the_program():
    shown = subprocess.run([sys.executable, "-m", "mmscale", "--version"], capture_output=True,
                           text=True, env={**_binary.os.environ, "PYTHONPATH": "src"})  # fmt: skip
    assert shown.stdout.strip().endswith(mmscale.version())
