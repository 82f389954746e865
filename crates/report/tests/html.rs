//! Tests of the HTML page.

mod records;

use std::collections::BTreeMap;
use std::fs;

use mmscale_document::{
    ArmRecord, Average, Better, BlameRecord, Build, CallRecord, Claim, Document, Doing, Histogram,
    Host, LockRecord, Metric, MovedNumber, ParamValue, ROBUST_SCHEMA, Robustness, Value,
};
use mmscale_report::compare::read;
use mmscale_report::{HtmlError, Notes, curves_svg, html_page};

/// A name that would break a page that does not escape it, everywhere a name can be.
const HOSTILE: &str = r#"</script></style><img src=x onerror="alert('1')">&"#;

fn metric(values: &[f64]) -> Metric {
    Metric {
        unit: "1/s".into(),
        better: Some(Better::Higher),
        headline: true,
        average: Average::default(),
        mean: values.iter().sum::<f64>() / values.len() as f64,
        ci95: Some([values[0], values[values.len() - 1]]),
        values: values.iter().map(|&x| Some(Value::Real(x))).collect(),
    }
}

fn arm(name: &str, scale: f64, text: &str) -> ArmRecord {
    let path = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let call = |names: &[&str], self_ns: u64| CallRecord {
        path: path(names),
        entered: 1,
        total_ns: self_ns,
        self_ns,
        ..CallRecord::default()
    };
    ArmRecord {
        arm: name.into(),
        seeds: vec![1, 2, 3],
        metrics: BTreeMap::from([(
            format!("{text}_per_s"),
            metric(&[10.0 * scale, 11.0 * scale, 12.0 * scale]),
        )]),
        locks: vec![LockRecord {
            class: text.into(),
            site: text.into(),
            acquisitions: 10,
            contentions: 5,
            wait_total_ns: 5_000,
            wait_max_ns: 3_000,
            ..LockRecord::default()
        }],
        blame: vec![BlameRecord {
            class: text.into(),
            waiter: text.into(),
            holder: path(&["exit", text]),
            doing: Doing::Work,
            through: Some(text.into()),
            wait_total_ns: 5_000,
        }],
        calls: vec![call(&["root", text], (60.0 * scale) as u64), call(&["root", "other"], 40)],
        histograms: BTreeMap::from([(
            text.to_owned(),
            Histogram {
                unit: "ns".into(),
                buckets: vec![[0, 64, 9], [64, 128, 3], [512, 1024, 1]],
            },
        )]),
        ..ArmRecord::default()
    }
}

fn document(cpus: u32, text: &str) -> Document {
    Document {
        command: vec!["mmscale".into(), "run".into(), text.into()],
        study: text.into(),
        profile: text.into(),
        cpus,
        host: Host { kernel: text.into(), cpu: text.into() },
        arms: vec![arm("stock", 1.0, text), arm(&format!("other {text}"), 2.0, text)],
        ..records::empty()
    }
}

fn analysis(text: &str) -> Robustness {
    Robustness {
        schema: ROBUST_SCHEMA.into(),
        build: Build::new("mmscale", "0.1.0", "0123456789ab"),
        command: vec![text.into()],
        study: text.into(),
        profile: text.into(),
        profile_hash: "0123456789abcdef".into(),
        cpus: 8,
        params: BTreeMap::new(),
        seeds: vec![1, 2],
        base: "stock".into(),
        own_seeds: vec![],
        limit: None,
        moved_limits: vec![],
        drawn_limits: vec![],
        levels: vec![],
        rounds_min: None,
        claims: vec![Claim {
            ci95: None,
            arm: text.into(),
            metric: text.into(),
            percent: -20.0,
            moved: vec![MovedNumber {
                name: text.into(),
                value: 2.0,
                range: [1.0, 3.0],
                basis: "assumed".into(),
                percent: [-50.0, 10.0],
            }],
            drawn_percent: vec![-30.0, 5.0],
        }],
        numbers: 1,
        without_effect: vec![],
        machines: 2,
        failures: vec![],
        checksum: None,
    }
}

fn page(documents: &[Document], analyses: &[&Robustness]) -> String {
    let runs: Vec<_> = documents.iter().map(|document| (document, Notes::default())).collect();
    html_page(&runs, analyses).unwrap()
}

#[test]
fn every_picture_is_there_with_a_sentence_and_nothing_is_requested() {
    let analysis = analysis("churn");
    let page = page(&[document(1, "churn"), document(8, "churn")], &[&analysis]);
    for part in [
        "churn_<wbr>per_<wbr>s by CPUs",
        "churn_<wbr>per_<wbr>s of each seed",
        "Waits for locks: mean and worst",
        "Distribution of churn",
        "Holders and waiters: stock",
        "Flame graph: CPU time",
        "Flame graph: waits for locks",
        "churn against stock: churn -20.0% depends on",
    ] {
        assert!(page.contains(part), "no `{part}`");
    }
    assert!(page.contains("class=\"moved\""), "the tornado");
    assert!(page.contains("class=\"ideal\""), "the ideal line");
    assert!(page.contains("rect class=\"more3\""), "the difference between arms");
    assert_eq!(page.matches("<h3>").count(), page.matches("<figcaption>").count());
    assert!(!page.contains("http"), "nothing is requested");
    assert!(page.contains("mmscale run churn"), "the command");
    assert!(page.contains("prefers-color-scheme: dark"));
}

#[test]
fn intervals_of_a_first_look_are_at_least_those_of_95_percent() {
    let all = [document(8, "made"), document(64, "made")];
    let shown = page(&all, &[]);
    // In the pictures of both runs, and in the curves over them.
    let times = |page: &str, words: &str| page.matches(words).count();
    let (usual, early) =
        ("the 95 % interval of the mean", "interval of the mean, of at least 95 %");
    assert_eq!((times(&shown, usual), times(&shown, early)), (3, 0));
    let mut looked = all;
    looked[1].arms.iter_mut().for_each(|arm| arm.first_look = true);
    let shown = page(&looked, &[]);
    assert_eq!((times(&shown, usual), times(&shown, early)), (1, 2), "the first run has no look");
}

#[test]
fn runs_of_one_study_have_names_of_their_own() {
    let of = |layout: &str| {
        let mut document = document(8, "churn");
        document.params.insert("layout".into(), ParamValue::Choice(layout.into()));
        document
    };
    let page = page(&[of("app"), of("huge")], &[]);
    for layout in ["app", "huge"] {
        let title = format!("<h2>churn {layout}, 8 CPUs of ");
        assert!(page.contains(&title), "{title}\n{page}");
    }
}

#[test]
fn no_text_of_a_document_becomes_markup() {
    let analysis = analysis(HOSTILE);
    let page = page(&[document(1, HOSTILE), document(8, HOSTILE)], &[&analysis]);
    assert!(!page.contains("<img"), "a tag");
    assert!(!page.contains("onerror=\""), "an attribute");
    assert_eq!(page.matches("</script>").count(), 3, "only those of the documents");
    assert_eq!(page.matches("<script").count(), 3);
    assert_eq!(page.matches("</style>").count(), 1);
}

#[test]
fn the_documents_of_a_page_can_be_read_again() {
    let (one, analysis) = (document(1, HOSTILE), analysis(HOSTILE));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.html");
    fs::write(&path, page(std::slice::from_ref(&one), &[&analysis])).unwrap();
    let side = read(&path).unwrap();
    assert_eq!(side.runs[0].document, one);
    assert_eq!(side.analyses, [analysis]);
}

#[test]
fn documents_without_results_make_whole_pages_and_none_an_error() {
    assert_eq!(html_page(&[], &[]), Err(HtmlError::Nothing));
    let mut empty = document(8, "churn");
    empty.arms.clear();
    let shown = page(&[empty], &[]);
    assert!(shown.contains("No arm of this run has a result.") && shown.ends_with("</html>"));
    let mut bare = document(8, "churn");
    for arm in &mut bare.arms {
        arm.metrics.clear();
        (arm.locks, arm.blame, arm.calls) = (vec![], vec![], vec![]);
        arm.histograms.clear();
    }
    let shown = page(&[bare], &[]);
    assert!(shown.ends_with("</html>") && !shown.contains("NaN"));
}

#[test]
fn values_that_are_no_numbers_break_no_picture() {
    let mut odd = document(8, "churn");
    for arm in &mut odd.arms {
        let metric = arm.metrics.get_mut("churn_per_s").unwrap();
        (metric.mean, metric.ci95) = (f64::NAN, None);
        metric.values = vec![None, Some(Value::Real(f64::INFINITY)), Some(Value::Real(-1.0))];
        arm.histograms.get_mut("churn").unwrap().buckets = vec![[0, u64::MAX, u64::MAX - 1]];
    }
    let shown = page(&[odd.clone(), Document { cpus: 9, ..odd }], &[]);
    let drawn = shown.split("<svg").skip(1).map(|svg| svg.split('>').next().unwrap_or(""));
    assert!(drawn.clone().count() > 5);
    for attribute in ["x=\"NaN", "cx=\"NaN", "y=\"NaN", "width=\"NaN", "NaN,", "inf%", "inf,"] {
        assert!(!shown.contains(attribute), "{attribute}");
    }
}

#[test]
fn the_curves_alone_are_a_picture_with_a_line_for_each_arm() {
    let (small, large) = (document(1, HOSTILE), document(8, HOSTILE));
    let picture = curves_svg(&[&small, &large]).unwrap();
    assert!(picture.starts_with("<svg xmlns=") && picture.ends_with("</svg>\n"), "{picture}");
    assert_eq!(picture.matches("<svg").count(), 1);
    let headlines = small.arms[0].metrics.values().filter(|metric| metric.headline).count();
    assert_eq!(picture.matches("polyline class=\"curve").count(), small.arms.len() * headlines);
    assert!(!picture.contains(HOSTILE) && !picture.contains("NaN"));
    assert_eq!(curves_svg(&[&small, &small]), None);
}

#[test]
fn a_huge_page_is_an_error_that_says_what_to_do() {
    let mut huge = document(8, "churn");
    huge.script = Some("x".repeat(65 << 20));
    let why = html_page(&[(&huge, Notes::default())], &[]).unwrap_err();
    assert!(matches!(why, HtmlError::TooLarge { .. }), "{why}");
    assert!(why.to_string().contains("name fewer documents"), "{why}");
}
