//! Tables before and after a change, and lists of changes, in many forms.

use mmscale_measured::{Chosen, Comparison, Comparisons, comparisons};

pub(crate) fn found(text: &str) -> Comparisons {
    comparisons(text.as_bytes(), &Chosen::default()).expect("a text").1
}

#[track_caller]
pub(crate) fn one(text: &str) -> Comparison {
    let all = found(text);
    assert_eq!(all.found.len(), 1, "{all:#?}\n{text}");
    all.found.into_iter().next().expect("one")
}

#[track_caller]
fn sides(text: &str, metric: &str, expected: &[(&str, f64)]) {
    let all = found(text);
    let found = all.found.iter().find(|found| found.metric == metric);
    let found = found.unwrap_or_else(|| panic!("{metric}: {all:#?}\n{text}"));
    let values: Vec<(&str, f64)> =
        found.sides.iter().zip(&found.values).map(|(name, of)| (name.as_str(), of[0])).collect();
    assert_eq!(values, expected, "{text}");
}

#[track_caller]
fn none(text: &str, why: &str) {
    let all = found(text);
    assert!(all.found.is_empty(), "{all:#?}\n{text}");
    let has = all.doubts.iter().any(|doubt| doubt.what.contains(why));
    assert!(has || why.is_empty() && all.doubts.is_empty(), "{:#?}\n{text}", all.doubts);
}

#[test]
fn tables_have_sides_by_their_names() {
    let plain = "                 before     after   change\n\
                 page_fault1    1234567   1345678   +9.0%\n";
    sides(plain, "page_fault1", &[("before", 1_234_567.0), ("after", 1_345_678.0)]);
    let quoted: String = plain.lines().map(|line| format!("> > {line}\n")).collect();
    sides(&quoted, "page_fault1", &[("before", 1_234_567.0), ("after", 1_345_678.0)]);
    sides("patched   base\n1200   1000\n", "", &[("base", 1000.0), ("patched", 1200.0)]);
    none("patched   base\n1200   1000\n1300   1100\n", "have no names");
    sides(
        "test   patched   base\nx   1200   1000\n",
        "x",
        &[("base", 1000.0), ("patched", 1200.0)],
    );
    let bars = "| test | v6.12 | v6.12 + patch |\n|---|---:|---:|\n| fork1 | 1,000.5 | 900 |\n";
    sides(bars, "fork1", &[("v6.12", 1000.5), ("v6.12 + patch", 900.0)]);
    let ascii = "+------+--------+-------+\n| test | before | after |\n+------+--------+-------+\n\
                 | a b  | 12 ms  | 10 ms |\n+------+--------+-------+\n";
    sides(ascii, "a b", &[("before", 12.0), ("after", 10.0)]);
    assert_eq!(one(ascii).unit, "ms");
    let rows = "            ops/s    sys time\nbase       1000    30.2\npatched    1200    28.1\n";
    sides(rows, "ops/s", &[("base", 1000.0), ("patched", 1200.0)]);
    sides(rows, "sys time", &[("base", 30.2), ("patched", 28.1)]);
}

#[test]
fn figures_may_touch_brackets_and_captions_are_no_names() {
    let text = "* Duration:\n             vanilla     account\nuser          400.00      450.00\n\
                elapsed       500.00      570.00(+14.0%)\n";
    sides(text, "elapsed", &[("vanilla", 500.0), ("account", 570.0)]);
    sides(text, "user", &[("vanilla", 400.0), ("account", 450.0)]);
    none(&text.replace("(+14.0%)", ""), "may be sides or metrics");
    none(&text.replace("+14.0%", "+19.0%"), "may be sides or metrics");
    let rough = [
        "\t\t       before     after     improvement",
        "a_call          200.0ns    180.0ns      ~10.0%",
        "b_call          300.0ns    270.0ns      ~10.0%\n",
    ]
    .join("\n");
    sides(&rough, "a_call", &[("before", 200.0), ("after", 180.0)]);
    let pairs = "### name = push\nbefore: 0.800000\nafter: 0.760000 (-5.00%, -0.04)\n\
                 ## name = pull\nbefore: 1.50\nafter: 1.20 (-20.00%, -0.30)\n";
    sides(pairs, "name = push", &[("before", 0.8), ("after", 0.76)]);
    sides(pairs, "name = pull", &[("before", 1.5), ("after", 1.2)]);
}

#[test]
fn curves_have_an_axis() {
    let text = "tasks   processes   threads\n1   603923   590000\n16   8000000   700000\n";
    let curve = one(text);
    assert_eq!((curve.at, curve.axis.as_str()), (vec![1, 16], "tasks"));
    assert_eq!(curve.values, [[603_923.0, 8_000_000.0], [590_000.0, 700_000.0]]);
    let csv = "tasks,processes,processes_idle,threads,threads_idle,linear\n0,0,100,0,100,0\n\
               1,603923,98.75,590000,98.75,603923\n2,1200000,97.5,900000,97.5,1207846\n";
    let curve = one(csv);
    assert_eq!((curve.sides.join(" "), curve.at), ("processes threads".to_owned(), vec![1, 2]));
    assert_eq!(curve.values[1], [590_000.0, 900_000.0]);
    let mmtests = "                                    vanilla                patched\n\
                   \x20                              6.2.0-rc4           6.2.0-rc4-v2\n\
                   Hmean     faults/sec-1     898781.81 (   0.00%)   894440.31 *  -0.48%*\n\
                   Hmean     faults/sec-4    2965589.00 (   0.00%)  2726451.00 *  -8.06%*\n";
    let curve = one(mmtests);
    assert_eq!((curve.metric.as_str(), curve.at), ("Hmean faults/sec", vec![1, 4]));
    assert_eq!(curve.sides, ["vanilla 6.2.0-rc4", "patched 6.2.0-rc4-v2"]);
    assert_eq!(curve.values[1], [894_440.31, 2_726_451.0]);
}

#[test]
fn rows_of_a_robot_are_read() {
    let text = "commit:\n  0a1b2c3d4e (\"mm: one\")\n  1a1b2c3d4e (\"mm: two\")\n\n\
                0a1b2c3d4e5f6071 1a1b2c3d4e5f607182938475\n---------------- -----\n\
                \x20        %stddev     %change         %stddev\n\
                \x20            \\          |                \\\n\
                \x20  1234567 ±  2%     -34.3%     811111 ±  3%  will-it-scale.per_process_ops\n\
                \x20    41.55            -5.0        36.55        \
                perf-profile.calltrace.cycles-pp.a.b\n\
                \x20     1234            +9.0%       1300        vmstat.system.cs\n";
    let row = one(text);
    assert_eq!(row.sides, ["0a1b2c3d4e", "1a1b2c3d4e"]);
    assert_eq!(row.values, [[1_234_567.0], [811_111.0]]);
    none("  100 ± 2%  -34.3%  90  will-it-scale.per_process_ops\n", "does not lead from");
}

#[test]
fn lists_have_changes() {
    for (text, metric, percent) in [
        ("page_fault1: +34.3 %", "page_fault1", 34.3),
        ("  - malloc1   -3.25%", "malloc1", -3.25),
        ("+1.5% fork1", "fork1", 1.5),
        ("a 12% improvement in page_fault1", "page_fault1", 12.0),
        ("We see a 5.5% reduction of system time with the series.", "system time", -5.5),
        ("page_fault2 improves by 7%.", "page_fault2", 7.0),
        (
            "kernel test robot noticed a -34.3% regression of will-it-scale.per_process_ops on:",
            "will-it-scale.per_process_ops",
            -34.3,
        ),
    ] {
        let change = one(text);
        assert!(change.only_changes, "{text}");
        assert_eq!(change.metric, metric, "{text}");
        assert!((change.values[1][0] - 100.0 - percent).abs() < 1e-9, "{change:?}");
    }
}

#[test]
fn what_is_not_certain_is_a_doubt() {
    for (text, why) in [
        ("test   ops/s   latency\na   100   3\nb   200   4\n", "may be sides or metrics"),
        ("a   100   200\nb   300   400\n", "no line above"),
        ("test before after change\nx 100 120 +34.3%\n", "does not lead"),
        ("test   before   after\nx   12,5   1,234\n", "two meanings"),
        ("test   before   after\nx   12 ms   13 us\n", "different units"),
        ("test   before   after\nx   12   -\n", "lacks a figure"),
        ("threads   before   after\n4   100   120\n2   50   60\n", "does not rise"),
        ("up to 34% improvement in page_fault1", "not exact"),
        ("Kernel builds improve by up to 3%.", "not exact"),
        ("a 20% improvement of the latency", "less may be better"),
        ("improves page_fault1 and fork1 by 10% and 20%", "several changes"),
        ("We do not see a 10% improvement in fork1.", "denied"),
        ("test   base   patched   base2\nx   1   2   3\n", ""),
        ("35.85%  [kernel]  [k] native_queued_spin_lock_slowpath\n", ""),
        ("CPU usage is 34.3% on average\n", ""),
    ] {
        match why {
            "" => assert!(found(text).found.is_empty(), "{text}: {:#?}", found(text)),
            why => none(text, why),
        }
    }
}

#[test]
fn names_of_columns_can_be_chosen() {
    let text = "test   ours   theirs\nx   100   90\n";
    none(text, "--sides 'ours,theirs'");
    let chosen = Chosen { sides: vec!["theirs".to_owned(), "ours".to_owned()] };
    let all = comparisons(text.as_bytes(), &chosen).expect("a text").1;
    assert_eq!(all.found[0].values, [[90.0], [100.0]]);
}

#[test]
fn captions_of_equal_tables_are_the_sides() {
    let table = |caption: &str, p: &str, t: &str| {
        format!(
            "{caption}:\ntasks   processes   processes_idle   threads   threads_idle\n\
             16      {p}      0.17      {t}      38.20\n\n"
        )
    };
    let (without, with) = (table("Without", "8000.25", "5000"), table("With", "8200.75", "5500"));
    for text in [format!("{without}{with}"), format!("{with}{without}")] {
        let all = found(&text);
        let curves: Vec<_> = all
            .found
            .iter()
            .map(|one| (one.metric.as_str(), one.sides.join(" "), one.at.clone(), &one.values))
            .collect();
        let sides = || ("Without With".to_owned(), vec![16]);
        let expected = [
            ("processes", sides().0, sides().1, &vec![vec![8000.25], vec![8200.75]]),
            ("threads", sides().0, sides().1, &vec![vec![5000.0], vec![5500.0]]),
        ];
        assert_eq!(curves, expected, "{all:#?}");
    }
    none(&without, "none of another side");
    let curve = one("With the patch:\ntasks   ops/s\n1   100\n2   190\n");
    assert_eq!((curve.sides, curve.at), (vec!["ops/s".to_owned()], vec![1, 2]), "one curve");
    let other = with.replace("16 ", "18 ");
    none(&format!("{without}{other}"), "other rows");
    let named = "Without THP:\ntest   before   after\nx   1   2\n\n\
                 With THP:\ntest   before   after\nx   3   4\n";
    assert_eq!(found(named).found.len(), 2, "columns are the sides: {:#?}", found(named));
    let two = "Baseline:\n\ntest   ops/s   latency\na   100   3\nb   200   4\n\n\
               Patched:\n\ntest   ops/s   latency\na   110   2\nb   190   5\n";
    sides(two, "a ops/s", &[("Baseline", 100.0), ("Patched", 110.0)]);
    sides(two, "b latency", &[("Baseline", 4.0), ("Patched", 5.0)]);
}

#[test]
fn a_second_line_of_names_is_of_its_columns() {
    let rows = "Amean     system-1          1.11 (   0.00%)        1.17 (  -5.41%)\n\
                Amean     system-4          2.00 (   0.00%)        1.98 (   1.00%)\n";
    let below =
        format!("times\n{:>43}{:>23}\n{:>66}\n{rows}", "v4.15-rc8", "v4.15-rc8", "range-pot-v1");
    assert_eq!(one(&below).sides, ["v4.15-rc8", "v4.15-rc8 range-pot-v1"]);
    let above = format!("{:>66}\n{:>43}{:>23}\n{rows}", "pot", "v4.15-rc8", "v4.15-rc8");
    assert_eq!(one(&above).sides, ["v4.15-rc8", "pot v4.15-rc8"]);
    let equal = format!("times\n{:>43}{:>23}\n{rows}", "v4.15-rc8", "v4.15-rc8");
    none(&equal, "equal names");
}

#[test]
fn proposals_of_sides_name_two() {
    let text = "kernel   one(2S)   two(2S)   one(4S)\nx   100   3   5\ny   200   4   6\n";
    none(text, "--sides 'BASE,OTHER'");
    assert!(!found(text).doubts.iter().any(|doubt| doubt.what.contains("--sides 'one")));
}

#[test]
fn idle_shares_and_deviations_of_a_robot_are_no_results() {
    let text = "testcase: will-it-scale\n\
                  100  +20.0%  120  will-it-scale.16.threads\n\
                  80.50  -1.0%  79.70  will-it-scale.16.threads_idle\n\
                  3.00  +50.0%  4.50  will-it-scale.stddev_%\n\
                  50  +20.0%  60  will-it-scale.per_thread_ops\n";
    let metrics: Vec<String> = found(text).found.into_iter().map(|one| one.metric).collect();
    assert_eq!(metrics, ["will-it-scale.16.threads", "will-it-scale.per_thread_ops"]);
}

#[test]
fn a_deviation_may_be_in_another_encoding() {
    for sign in ["±", "A+-", "+-", "Â±"] {
        let text = format!(
            "  2000 {sign}  1%     +10.0%    2200 {sign}  2%  vm-scalability.throughput\n\
             0.50 {sign}  3%  +8.0%  0.54 {sign}  5%  perf-stat.ipc\n"
        );
        sides(&text, "vm-scalability.throughput", &[("before", 2000.0), ("after", 2200.0)]);
    }
}
