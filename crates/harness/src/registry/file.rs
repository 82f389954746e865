//! The study file: `study.toml`, next to the study's source. It contains the arms, the defaults of
//! the parameters, and the reasons for them.
//!
//! A release build contains the file. A development build reads it from the source tree when it
//! starts, so that a default can be changed without a build. The documents of such runs contain a
//! hash of the file.

use crate::names::UnknownName;
use crate::param::{Kind, ParamSpec};
use crate::study::{Arm, ArmSpec, Choice, FileError, MetricSpec, Report, keys, value};
use mmscale_arch::MAX_CPUS;
use std::fmt::Display;
use toml::{Table, Value};

/// Maximum number of headlines of a study. With three, the default number of seeds is enough for
/// each of them to hold.
pub const MAX_HEADLINES: usize = 3;

/// A section of defaults in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Section {
    /// Full runs on simulated machines and on threads.
    Defaults,
    /// Quick runs on simulated machines and on threads.
    Quick,
    /// Quick runs of simulated machines with more than 512 CPUs.
    QuickLarge,
    /// Full runs on the live kernel, whose windows are shorter because time is real.
    Live,
    /// Quick runs on the live kernel.
    LiveQuick,
}

impl Section {
    const ALL: [Self; 5] =
        [Self::Defaults, Self::Quick, Self::QuickLarge, Self::Live, Self::LiveQuick];

    const fn key(self) -> &'static str {
        match self {
            Self::Defaults => "defaults",
            Self::Quick => "quick",
            Self::QuickLarge => "quick_large",
            Self::Live => "live",
            Self::LiveQuick => "live_quick",
        }
    }
}

/// A parsed file. A parameter without a default in it has the default of its declaration.
#[derive(Debug)]
pub(crate) struct StudyFile {
    study: &'static str,
    /// The question that the study answers, in one line.
    pub(crate) summary: String,
    /// The start of a run, before its window, in which nothing counts.
    pub(crate) start: Option<String>,
    /// The mail that the study began with.
    pub(crate) report: Option<Report>,
    /// The default machine profile.
    pub(crate) profile: String,
    /// Default number of CPUs of a simulated machine; `None`: that of the profile.
    pub(crate) cpus: Option<usize>,
    /// The metrics that the study tests.
    headlines: Vec<String>,
    defaults: [Table; Section::ALL.len()],
    /// All arms. The other arms are compared with the first.
    pub(crate) arms: Vec<ArmSpec>,
}

/// A table of the file and its location, for error messages.
struct FileTable {
    study: &'static str,
    place: String,
    table: Table,
}

impl FileTable {
    fn error(&self, what: impl Display) -> FileError {
        FileError { study: self.study, place: self.place.clone(), what: what.to_string() }
    }

    /// Returns an error for the first key that is not `known`.
    fn only<'a>(&self, known: impl Iterator<Item = &'a str> + Clone) -> Result<(), FileError> {
        let unknown = self.table.keys().find(|key| !known.clone().any(|other| other == *key));
        unknown.map_or(Ok(()), |key| Err(self.error(UnknownName::new("key", key, known))))
    }

    fn text(&self, key: &str) -> Result<&str, FileError> {
        match self.table.get(key) {
            Some(Value::String(text)) if !text.is_empty() => Ok(text),
            Some(other) => Err(self
                .error(format!("`{key}` is {other}; it must be a string, as in {key} = \"..\""))),
            None => Err(self.error(format!("the key `{key}` is missing"))),
        }
    }

    fn table(&self, key: &str) -> Result<Table, FileError> {
        match self.table.get(key) {
            None => Ok(Table::new()),
            Some(Value::Table(table)) => Ok(table.clone()),
            Some(other) => {
                Err(self.error(format!("`{key}` is {other}; it must be a section [{key}]")))
            }
        }
    }
}

impl StudyFile {
    /// Parses a file. `own` are the choices of the study's arms other than policies.
    pub(crate) fn parse(
        study: &'static str,
        text: &str,
        own: &[Choice],
    ) -> Result<Self, FileError> {
        let table = text.parse::<Table>().map_err(|why| {
            let at = why.span().map_or(0, |span| span.start.min(text.len()));
            let line = text.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count() + 1;
            let (place, what) = (format!(", line {line}"), why.message().to_owned());
            FileError { study, place, what }
        })?;
        let file = FileTable { study, place: String::new(), table };
        let sections = Section::ALL.map(Section::key);
        file.only(
            ["name", "summary", "start", "report", "profile", "cpus", "headlines", "arm"]
                .into_iter()
                .chain(sections),
        )?;
        if file.text("name")? != study {
            let given = file.text("name")?;
            return Err(file.error(format!(
                "the name is `{given}`, but the folder is `{study}`; both must be equal"
            )));
        }
        let [full, quick, large, live, live_quick] = sections.map(|key| file.table(key));
        let defaults = [full?, quick?, large?, live?, live_quick?];
        let (summary, profile) = (file.text("summary")?, file.text("profile")?);
        let (arms, report) = (arms(&file, own)?, report(&file)?);
        let (summary, profile, cpus) = (summary.to_owned(), profile.to_owned(), cpus(&file)?);
        let headlines = headlines(&file)?;
        let start = file.table.contains_key("start").then(|| file.text("start")).transpose()?;
        let start = start.map(str::to_owned);
        Ok(Self { study, summary, start, report, profile, cpus, headlines, defaults, arms })
    }

    /// Returns the declared parameters with the defaults of the file.
    pub(crate) fn params(&self, declared: Vec<ParamSpec>) -> Result<Vec<ParamSpec>, FileError> {
        self.with_defaults(declared, [(0, Section::Defaults), (1, Section::Quick)])
    }

    /// Returns `params` with the file's defaults for quick runs of large machines.
    pub(crate) fn params_quick_large(
        &self,
        params: &[ParamSpec],
    ) -> Result<Vec<ParamSpec>, FileError> {
        self.with_defaults(params.to_vec(), [(1, Section::QuickLarge)])
    }

    /// Returns `params` with the file's defaults for the live kernel.
    pub(crate) fn params_on_live(&self, params: &[ParamSpec]) -> Result<Vec<ParamSpec>, FileError> {
        self.with_defaults(params.to_vec(), [(0, Section::Live), (1, Section::LiveQuick)])
    }

    /// Marks the file's headlines among the metrics of the workload.
    pub(crate) fn metrics(
        &self,
        mut declared: Vec<MetricSpec>,
    ) -> Result<Vec<MetricSpec>, FileError> {
        for name in &self.headlines {
            let names = || declared.iter().map(|spec| spec.name);
            let Some(at) = names().position(|other| other == name) else {
                return Err(self.error(UnknownName::new("metric", name, names())));
            };
            let spec = &mut declared[at];
            if spec.headline {
                return Err(self.error(format!("the headline `{name}` is named twice")));
            }
            if spec.better.is_none() {
                return Err(self.error(format!(
                    "the headline `{name}` has no better direction; declare the metric by `lower` \
                     or `higher`"
                )));
            }
            spec.headline = true;
        }
        Ok(declared)
    }

    /// Creates an error about the file as a whole.
    pub(crate) fn error(&self, what: impl Display) -> FileError {
        FileError { study: self.study, place: String::new(), what: what.to_string() }
    }

    /// Applies the defaults of sections to full runs (length 0) or quick runs (length 1).
    fn with_defaults(
        &self,
        mut declared: Vec<ParamSpec>,
        sections: impl IntoIterator<Item = (usize, Section)>,
    ) -> Result<Vec<ParamSpec>, FileError> {
        for (length, section) in sections {
            let place = format!(", [{}]", section.key());
            let error = |what| FileError { study: self.study, place: place.clone(), what };
            for (name, value) in &self.defaults[section as usize] {
                let names = || declared.iter().map(|spec| &*spec.name);
                let Some(at) = names().position(|other| other == name) else {
                    return Err(error(UnknownName::new("parameter", name, names()).to_string()));
                };
                let spec = &mut declared[at];
                if set_default(spec, length, section, value).is_none() {
                    let range = spec.range();
                    return Err(error(format!("`{name}` cannot be {value}; allowed: {range}")));
                }
            }
        }
        Ok(declared)
    }
}

fn report(file: &FileTable) -> Result<Option<Report>, FileError> {
    if !file.table.contains_key("report") {
        return Ok(None);
    }
    let place = ", [report]".to_owned();
    let section = FileTable { study: file.study, place, table: file.table("report")? };
    section.only(["subject", "link"].into_iter())?;
    let text = |key| section.text(key).map(str::to_owned);
    Ok(Some(Report { subject: text("subject")?, link: text("link")? }))
}

fn cpus(file: &FileTable) -> Result<Option<usize>, FileError> {
    let Some(value) = file.table.get("cpus") else { return Ok(None) };
    match value.as_integer() {
        Some(cpus) if (1..=MAX_CPUS as i64).contains(&cpus) => Ok(Some(cpus as usize)),
        _ => Err(file.error(format!("`cpus` cannot be {value}; allowed: 1 to {MAX_CPUS}"))),
    }
}

fn headlines(file: &FileTable) -> Result<Vec<String>, FileError> {
    let Some(value) = file.table.get("headlines") else { return Ok(Vec::new()) };
    let names: Option<Vec<String>> = value
        .as_array()
        .and_then(|names| names.iter().map(|name| name.as_str().map(str::to_owned)).collect());
    let wrong = || format!("`headlines` is {value}; it must be a list of names of metrics");
    let names = names.ok_or_else(|| file.error(wrong()))?;
    if names.len() > MAX_HEADLINES {
        return Err(file.error(format!(
            "{} headlines are named; at most {MAX_HEADLINES} are allowed, because each one more \
             needs more seeds for any of them to hold",
            names.len()
        )));
    }
    Ok(names)
}

fn arms(file: &FileTable, own: &[Choice]) -> Result<Vec<ArmSpec>, FileError> {
    let mut arms: Vec<ArmSpec> = Vec::new();
    let entries = file.table.get("arm").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if entries.is_empty() {
        return Err(file.error("no arm is defined; add one or more sections [[arm]]"));
    }
    for (nth, entry) in entries.iter().enumerate() {
        let table = entry.as_table().cloned();
        let table = table.ok_or_else(|| file.error("an arm must be a table [[arm]]"))?;
        let name = table.get("name").and_then(Value::as_str);
        let place = name.map_or(format!(", arm {}", nth + 1), |name| format!(", arm `{name}`"));
        let entry = FileTable { study: file.study, place, table };
        entry.only(["name", "help"].into_iter().chain(keys(own)))?;
        let (name, help) = (entry.text("name")?.to_owned(), entry.text("help")?.to_owned());
        if arms.iter().any(|other| other.name == name) {
            return Err(entry.error("another arm has this name; names must differ"));
        }
        let mut choices = Arm::default();
        for key in keys(own).filter(|key| entry.table.contains_key(*key)) {
            let chosen = value(key, entry.text(key)?, own)
                .map_err(|why| entry.error(format!("key `{key}`: {why}")))?;
            choices.choose(key, chosen);
        }
        arms.push(ArmSpec { name, help, choices });
    }
    Ok(arms)
}

/// Sets the default for full runs (`length` 0, which also applies to quick runs) or for quick runs.
fn set_default(spec: &mut ParamSpec, length: usize, section: Section, value: &Value) -> Option<()> {
    match &mut spec.kind {
        Kind::Count { default, range, .. } => {
            let n = u64::try_from(value.as_integer()?).ok()?;
            (range[0]..=range[1]).contains(&n).then(|| default[length..].fill(n))
        }
        Kind::Real { default, range, .. } => {
            let x = value.as_float()?;
            (range[0]..=range[1]).contains(&x).then(|| default[length..].fill(x))
        }
        Kind::Switch { default } => {
            *default = value.as_bool()?;
            Some(())
        }
        Kind::Each { names, in_turn } => {
            let wanted: Vec<_> = value.as_array()?.iter().map(|name| name.as_str()).collect();
            let kept: Vec<_> =
                names.iter().copied().filter(|name| wanted.contains(&Some(*name))).collect();
            *in_turn = (kept.len() == wanted.len() && !kept.is_empty()).then_some(kept)?;
            if matches!(section, Section::Live | Section::LiveQuick) {
                // The live kernel does not have the others.
                names.clone_from(in_turn);
            }
            Some(())
        }
        Kind::Choice { default, names } => {
            *default = names.iter().find(|name| Some(**name) == value.as_str())?;
            Some(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::param::{Length, Unit};
    use mmscale_document::{Better, ParamValue};

    const TEXT: &str = r#"
        name = "x"
        summary = "y"
        profile = "arm64-8"
        [defaults]
        pages = 7
        [quick]
        pages = 3
        [[arm]]
        name = "a"
        help = "b"
        tick = "phased"
        depth = "deep"
    "#;

    const OWN: [Choice; 1] = [Choice { key: "depth", values: &["flat", "deep"] }];

    fn parse(text: &str) -> Result<StudyFile, FileError> {
        StudyFile::parse("x", text, &OWN)
    }

    fn declared(most: u64) -> Vec<ParamSpec> {
        vec![ParamSpec::count("pages", Unit::Pages, 1, [1, most], "")]
    }

    #[test]
    fn a_file_gives_arms_and_both_defaults() {
        let file = parse(TEXT).unwrap();
        let arm = &file.arms[0].choices;
        assert_eq!(
            ["tick", "depth", "lru"].map(|key| arm.chosen(key)),
            [Some("phased"), Some("deep"), None]
        );
        let specs = file.params(declared(9)).unwrap();
        assert_eq!(specs[0].default(Length::Full), ParamValue::Count(7));
        assert_eq!(specs[0].default(Length::Quick), ParamValue::Count(3));
    }

    #[test]
    fn a_default_outside_its_range_or_of_no_parameter_is_refused() {
        let why = parse(TEXT).unwrap().params(declared(5)).unwrap_err().to_string();
        assert_eq!(why, "study.toml of x, [defaults]: `pages` cannot be 7; allowed: 1 to 5 pages");
        let text = TEXT.replace("pages = 3", "page = 3");
        let why = parse(&text).unwrap().params(declared(9)).unwrap_err().to_string();
        assert!(why.starts_with("study.toml of x, [quick]: "), "{why}");
        assert!(why.contains("no parameter named `page`; did you mean `pages`?"), "{why}");
    }

    /// A default lists what runs in turn; others may still be chosen, except on the live kernel.
    #[test]
    fn a_value_that_does_not_run_in_turn_can_be_chosen() {
        let load = || vec![ParamSpec::each("load", &["a", "b", "c"], "")];
        let text = TEXT.replace("pages = 7", "load = [\"a\", \"b\"]").replace("pages = 3", "");
        let file = parse(&text.replace("[[arm]]", "[live]\nload = [\"b\"]\n[[arm]]")).unwrap();
        let spec = file.params(load()).unwrap().remove(0);
        assert_eq!(spec.in_turn(), ["a", "b"]);
        assert_eq!(spec.parse("c").unwrap(), ParamValue::Choice("c".into()));
        let live = file.with_defaults(load(), [(0, Section::Live)]).unwrap().remove(0);
        assert_eq!(live.in_turn(), ["b"]);
        assert!(live.parse("c").is_err());
        assert!(parse(&text.replace("[\"a\", \"b\"]", "[]")).unwrap().params(load()).is_err());
    }

    /// Without this, an arm with a misspelt key would run as another arm under its own name.
    #[test]
    fn an_arms_unknown_keys_and_values_are_refused_with_the_nearest() {
        let refusal =
            |from: &str, to: &str| parse(&TEXT.replace(from, to)).unwrap_err().to_string();
        let tick = "tick = \"phased\"";
        assert_eq!(
            refusal(tick, "cachs = \"blockmap\""),
            "study.toml of x, arm `a`: there is no key named `cachs`; did you mean `caches`?"
        );
        assert_eq!(
            refusal(tick, "lru = \"lzay\""),
            "study.toml of x, arm `a`: key `lru`: there is no policy named `lzay`; did you \
             mean `lazy`? (known: stock, freeze, lazy)"
        );
        let why = refusal("\"deep\"", "\"depp\"");
        assert!(why.contains("no value named `depp`; did you mean `deep`? (known: flat, deep)"));
        let why = refusal("summary = ", "sumary = ");
        assert!(why.contains("no key named `sumary`; did you mean `summary`?"), "{why}");
        let why = refusal("[quick]", "[quik]");
        assert!(why.contains("no key named `quik`; did you mean `quick`?"), "{why}");
    }

    #[test]
    fn the_default_number_of_seeds_lets_all_headlines_hold() {
        assert_eq!(mmscale_stats::pairs_needed(MAX_HEADLINES), crate::SEEDS as usize);
    }

    #[test]
    fn headlines_are_few_known_and_have_a_direction() {
        let lower =
            MetricSpec { better: Some(Better::Lower), ..MetricSpec::new("wait_ns", "ns", "") };
        let metrics = [lower, MetricSpec::new("pages", "1", "")];
        let of = |list: &str| {
            let file = parse(&TEXT.replace("summary", &format!("headlines = {list}\nsummary")))?;
            file.metrics(metrics.to_vec())
        };
        let marked = of("[\"wait_ns\"]").unwrap();
        assert_eq!(marked.iter().map(|spec| spec.headline).collect::<Vec<_>>(), [true, false]);
        assert!(
            parse(TEXT).unwrap().metrics(metrics.to_vec()).unwrap().iter().all(|m| !m.headline)
        );
        for (list, expected) in [
            ("[\"wait_n\"]", "no metric named `wait_n`; did you mean `wait_ns`?"),
            ("[\"pages\"]", "`pages` has no better direction; declare the metric by `lower`"),
            ("[\"wait_ns\", \"wait_ns\"]", "`wait_ns` is named twice"),
            ("[\"a\", \"b\", \"c\", \"d\"]", "4 headlines are named; at most 3 are allowed"),
            ("\"wait_ns\"", "it must be a list of names"),
            ("[1]", "it must be a list of names"),
        ] {
            let why = of(list).unwrap_err().to_string();
            assert!(why.contains(expected), "`{why}` does not say `{expected}`");
        }
    }

    #[test]
    fn what_else_is_wrong_is_said_with_its_place() {
        let refusal =
            |from: &str, to: &str| parse(&TEXT.replace(from, to)).unwrap_err().to_string();
        let cases = [
            ("help = \"b\"", "", "arm `a`: the key `help` is missing"),
            ("help = \"b\"", "help = 5", "arm `a`: `help` is 5; it must be a string"),
            ("tick = \"phased\"", "tick = 1", "arm `a`: `tick` is 1; it must be a string"),
            ("name = \"x\"", "name = \"z\"", "the name is `z`, but the folder is `x`"),
            ("[[arm]]", "[arms]", "no key named `arms`; did you mean `arm`?"),
            ("[[arm]]", "[arm]", "no arm is defined"),
            ("summary =", "cpus = 0\nsummary =", "`cpus` cannot be 0; allowed: 1 to 4096"),
            ("pages = 7", "pages = = 7", "study.toml of x, line 6: "),
            ("help = \"b\"", "help = \"b\"\n[[arm]]\nname=\"a\"\nhelp=\"c\"", "has this name"),
        ];
        for (from, to, expected) in cases {
            let why = refusal(from, to);
            assert!(why.contains(expected), "`{why}` does not say `{expected}`");
        }
    }
}
