"""Frames, comparisons, data sets, pictures and representations of results."""

from __future__ import annotations

import math

import pytest

import mmscale
from mmscale import _run, _table


def test_a_frame_is_tidy_and_has_the_values_of_the_document(pair):
    frame = pair.frame()
    assert list(frame.columns) == list(_table.ROW)
    metric = pair[0].document["arms"][1]["metrics"]["ops_per_s"]
    chosen = frame[(frame.arm == "lru=lazy") & (frame.metric == "ops_per_s")]
    assert list(chosen.value) == metric["values"] and list(chosen.seed) == [1, 2, 3, 4, 5, 6, 7]
    assert set(chosen.unit) == {"1/s"} and chosen.headline.all()


def test_swept_parameters_have_columns(swept):
    frame = swept.frame()
    assert set(frame.cpus) == {2, 4} and set(frame.pages) == {1, 4}
    assert not frame.duplicated(["cpus", "pages", "arm", "seed", "metric"]).any()


def test_arrow_gives_the_same_rows_to_other_libraries(swept):
    pa, polars = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    frame = swept.frame()
    assert pa.table(swept).num_rows == len(frame)
    assert swept.polars().shape == frame.shape
    assert polars.DataFrame(swept).filter(polars.col("arm") == "lazy").height == sum(
        frame.arm == "lazy"
    )


def test_a_data_set_has_dimensions_and_units(swept):
    pytest.importorskip("xarray")
    data = swept.to_xarray()
    assert dict(data.sizes) == {"cpus": 2, "pages": 2, "arm": 2, "seed": 2}
    assert list(data.arm.values) == ["stock", "lazy"]
    assert data.ops_per_s.attrs["unit"] == "1/s"
    one = swept.where(cpus=4, pages=1)[0].document["arms"][1]["metrics"]["ops_per_s"]["values"][0]
    assert float(data.ops_per_s.sel(cpus=4, pages=1, arm="lazy", seed=1)) == one


def test_changes_are_those_of_the_program(pair):
    changes = pair.compare()
    found = {row["metric"]: row for row in changes.headlines}
    assert found["ops_per_s"]["pairs"] == 7 and found["ops_per_s"]["arm"] == "lru=lazy"
    percent = found["ops_per_s"]["change_percent"]
    lines = [line for line in pair[0].text.splitlines() if line.startswith("lru=lazy")]
    assert f"ops_per_s {percent:+.1f}%" in lines[0]
    assert changes.frame().shape[0] == len(changes)
    back = pair.compare("lru=lazy").headlines
    assert {row["arm"] for row in back} == {"stock"}
    opposite = next(row for row in back if row["metric"] == "ops_per_s")
    assert opposite["change_percent"] * percent < 0
    with pytest.raises(mmscale.CallError, match="known: stock, lru=lazy"):
        pair.compare("frozen")


def test_each_point_of_a_sweep_is_compared(swept):
    rows = swept.compare()
    assert {(row["cpus"], row["pages"]) for row in rows} == {(2, 1), (2, 4), (4, 1), (4, 4)}
    with pytest.raises(mmscale.CallError, match="one arm only"):
        mmscale.run("churn", cpus=2, shape="fill", quick=True, seeds=1, arm="stock").compare()


def test_equal_calls_have_equal_fingerprints_and_save_reads_back(pair, tmp_path):
    again = mmscale.run("churn", cpus=4, shape="fill", policy="lru=lazy", seeds=7, quick=True,
                        output=tmp_path)  # fmt: skip
    assert again[0].fingerprint == pair[0].fingerprint
    read = mmscale.read(tmp_path)
    assert read[0].document == again[0].document and read[0].text == again[0].text
    with pytest.raises(mmscale.CallError, match="exists"):
        mmscale.run("churn", cpus=4, shape="fill", quick=True, output=tmp_path, seeds=1)
    pair.save(tmp_path / "saved")
    assert mmscale.read(tmp_path / "saved")[0].fingerprint == pair[0].fingerprint
    with pytest.raises(mmscale.CallError, match="no documents"):
        (tmp_path / "empty").mkdir()
        mmscale.read(tmp_path / "empty")


def test_costs_are_options_of_the_call():
    words = _run.arguments(cost={"handoff_fixed_ns": [110, 575], "lock_ns": 9.5})
    assert words == ["--cost=handoff_fixed_ns=110,575", "--cost=lock_ns=9.5"]


def test_several_profiles_run_one_by_one():
    both = mmscale.run("churn", profile=["x86-2", "arm64-8"], arm="stock", seeds=1, quick=True)
    assert [result.profile for result in both] == ["x86-2", "arm64-8"]


def test_representations_have_the_answer(pair, swept):
    assert repr(pair).startswith("churn: what does the LRU lock cost")
    html = pair._repr_html_()
    assert "lru=lazy" in html and "<script" not in html and "http" not in html.split("</pre>")[1]
    assert "cpus=2 pages=1 stock: cpu_ns_per_op" in repr(swept)
    # A headline that is 0 everywhere is left out, as in the program's answer.
    assert swept._repr_html_().count("<tr>") == 1 + 4 * 2 * 2
    assert len(mmscale.studies.churn.headlines) == 3
    assert "better*" in repr(pair.compare()) and "ops_per_s" in pair.compare()._repr_html_()


def test_a_sweep_is_a_curve_with_ribbons(swept):
    pytest.importorskip("matplotlib")
    ax = swept.where(pages=1).plot("ops_per_s", log=True)
    assert [line.get_label() for line in ax.lines] == ["stock", "lazy"]
    assert len(ax.collections) == 2 and ax.get_yscale() == "log"
    assert ax.get_ylabel() == "ops_per_s [1/s]" and ax.get_xlabel() == "CPUs"
    assert len(swept.plot("ops_per_s").lines) == 4, "a line for each arm and number of pages"


def test_two_arms_are_joined_dots(pair):
    pytest.importorskip("matplotlib")
    ax = pair.plot()
    assert len(ax.lines) == 7 and len(ax.collections) == 2
    assert [label.get_text() for label in ax.get_xticklabels()] == ["stock", "lru=lazy"]
    with pytest.raises(mmscale.CallError, match="known: .*ops_per_s"):
        pair.plot("ops")
    with pytest.raises(mmscale.CallError, match="known: curve, pairs"):
        pair.plot(kind="pie")


def test_robustness_is_a_tornado(tmp_path):
    pytest.importorskip("matplotlib")
    found = mmscale.robust("churn", profile="x86-2", arm=["stock", "lazy"], machines=3, seeds=1,
                           cache=tmp_path)  # fmt: skip
    ax = found.plot(metric="ops_per_s", top=5)
    assert len(ax.patches) == 10 and "ops_per_s" in ax.get_xlabel()
    frame = found.frame()
    assert set(frame.metric) == {claim["metric"] for claim in found.claims}
    assert all(0 <= share <= 1 and not math.isnan(share) for share in found.holds().values())
    assert "of 3" in repr(found) and "of 3" in found._repr_html_()
    with pytest.raises(mmscale.CallError, match="no claim"):
        found.plot(arm="nobody")


def test_a_map_says_where_which_arm_is_best(tmp_path):
    pytest.importorskip("pandas")
    knobs = {"cpus": (2, 16), "pages": "1..64:log"}
    call = dict(arm=["stock", "lazy"], seeds=1, runs=24, output=tmp_path, progress=False)
    found = mmscale.settle("churn", knobs, **call)
    frame = found.frame()
    assert list(frame.columns) == ["cpus", "pages", "stock", "lazy", "best"] and len(frame) == 12
    assert frame.cpus.between(2, 16).all() and (frame.stock > 0).all()
    assert abs(sum(part["share"] for part in found.regions) - 1) < 0.05
    assert 0 <= found.error["share"] <= 1
    assert found.svg.startswith("<svg") and found.svg in found._repr_html_()
    assert "Error:" in repr(found)
    # The runs are there, so the same call gives the same map.
    again = mmscale.settle("churn", knobs, **call)
    assert again.document == found.document
    with pytest.raises(mmscale.CallError, match="its two ends"):
        mmscale.settle("churn", {"cpus": 4}, **call)
    with pytest.raises(mmscale.CallError, match="mean `pages`"):
        mmscale.settle("churn", {"page": (1, 4)}, **call)


def test_progress_counts_runs(monkeypatch):
    seen = []

    class Bar:
        n = 0

        def update(self, number):
            self.n += number
            seen.append(self.n)

        def close(self):
            seen.append("closed")

    monkeypatch.setattr(_run, "bar", lambda total, title: seen.append((total, title)) or Bar())
    mmscale.run("churn", cpus=2, shape="fill", arm="stock", seeds=2, quick=True, progress=True)
    assert seen == [(2, "churn on sim, 2 CPUs: stock"), 1, 2, "closed"]


def test_equal_lines_can_both_be_seen(swept):
    pytest.importorskip("matplotlib")
    first, second = swept.where(pages=1).plot("ops_per_s").lines
    assert first.get_linewidth() > second.get_linewidth()
    assert first.get_linestyle() == "-" and second.get_linestyle() == "--"


def test_a_picture_names_its_study_and_begins_at_zero(swept, pair):
    pytest.importorskip("matplotlib")
    ax = swept.where(pages=1).plot("ops_per_s")
    assert ax.get_title() == "churn on x86-512" and ax.get_ylim()[0] == 0
    assert pair.plot().get_title() == "churn on x86-512, 4 CPUs"
    ax.figure.canvas.draw()
    assert ax.yaxis.get_offset_text().get_text() == ""


def test_several_results_say_what_limits_each(swept):
    for shown in (repr(swept), swept._repr_html_()):
        assert shown.count(" stock: ") >= len(swept) and "CPU" in shown
    assert swept._repr_html_().count("<details>") == len(swept)


def test_figures_have_four_digits():
    from mmscale._html import number

    shown = [number(value) for value in (0, 6190, 20890.2, 1.5e6, 0.25, 1234.56, 0.00001234)]
    assert shown == ["0", "6,190", "20,890", "1,500,000", "0.25", "1,235", "1.234e-05"]


def test_saved_runs_are_compared_and_written_about(pair, tmp_path):
    pair.save(tmp_path / "saved")
    same = mmscale.compare(tmp_path / "saved", pair)
    assert {row["verdict"] for row in same} == {"same"}
    assert "Problem: churn" in mmscale.letter(pair, arm="lru=lazy")
    with pytest.raises(mmscale.CallError, match="no result"):
        mmscale.letter(7)


def test_a_report_is_explained_from_text_or_file(tmp_path):
    report = "\n".join(
        [
            " contended   total wait     max wait     avg wait         type   caller",
            "",
            "      9000     4.00 s      500.00 us     444.00 us     spinlock   folio_lruvec_lock_irqsave",
            "       100     1.00 ms      50.00 us      10.00 us     spinlock   free_pcppages_bulk",
            "",
        ]
    )
    (tmp_path / "report.txt").write_text(report)
    assert mmscale.explain(report) == mmscale.explain(tmp_path / "report.txt")
    assert "churn" in mmscale.explain(report)


def test_what_if_has_its_document():
    found = mmscale.whatif("churn", cpus=2, shape="fill", seeds=1, of="handoff", progress=False)
    assert found["schema"].startswith("mmscale/whatif/") and found["study"] == "churn"
