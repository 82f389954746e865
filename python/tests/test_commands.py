"""Other commands of the program."""

from __future__ import annotations

import pytest

import mmscale

REPORT = """ contended   total wait     max wait     avg wait         type   caller

     90000     12.41 s       9.31 ms     137.93 us     spinlock   folio_lruvec_lock_irqsave+0x5e
"""


def test_a_report_is_explained_from_its_text_or_file(tmp_path):
    path = tmp_path / "contention.txt"
    path.write_text(REPORT)
    from_file = mmscale.explain(path, cpus=72, seconds=10)
    assert "churn" in from_file
    assert mmscale.explain(REPORT, cpus=72, seconds=10).splitlines()[1:] == (
        from_file.splitlines()[1:]
    )
    with pytest.raises(mmscale.CallError, match="gone"):
        mmscale.explain(tmp_path / "gone")


def test_a_letter_and_a_comparison_are_of_saved_runs(pair, tmp_path):
    pair.save(tmp_path / "runs")
    assert "lru=lazy" in mmscale.letter(tmp_path / "runs")
    changes = mmscale.compare(tmp_path / "runs", tmp_path / "runs")
    assert {row["verdict"] for row in changes.headlines} == {"same"}
    with pytest.raises(mmscale.CallError, match="no arm `frozen`"):
        mmscale.letter(tmp_path / "runs", arm="frozen")


def test_whatif_has_the_parts_that_were_named():
    found = mmscale.whatif("churn", profile="x86-2", of="handoff", seeds=1, progress=False)
    assert found["study"] == "churn" and "handoff" in repr(found)
    with pytest.raises(mmscale.CallError, match="nosuch"):
        mmscale.whatif("churn", of="nosuch")
