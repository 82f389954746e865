//! Items of the gallery, with the fields that a text cannot know marked.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use mmscale_calibrate::gallery::{self, OPEN};
use mmscale_harness::{Registry, Study};
use mmscale_measured::{Comparison, Report};

use crate::args::ClaimArgs;

/// Facts of all items of a file: from the call, or from the text.
pub(super) struct Known<'a> {
    registry: &'a Registry,
    args: &'a ClaimArgs,
    report: &'a Report,
}

/// An item with its fields as they are written. [`OPEN`] marks those that are not known.
pub(super) struct Draft<'a> {
    of: &'a Comparison,
    id: String,
    source: String,
    measured_on: String,
    machine: String,
    script: String,
    linux: String,
    x: String,
    metric: String,
    set: BTreeMap<String, String>,
    arms: Vec<Arm>,
}

struct Arm {
    name: String,
    policy: Option<String>,
    set: BTreeMap<String, String>,
}

/// The most words of an id.
const ID: usize = 4;
/// The parameter of scripts that chooses threads of one process.
const IN_THREADS: &str = "in_threads";
/// The parameter of scripts that is the number of tasks.
const TASKS: &str = "tasks";

impl<'a> Known<'a> {
    /// Collects what is known.
    pub(super) const fn of(
        registry: &'a Registry,
        args: &'a ClaimArgs,
        report: &'a Report,
    ) -> Self {
        Self { registry, args, report }
    }

    /// Returns a study or script, of the gallery first.
    fn study(&self, name: &str) -> Option<Study> {
        let own = gallery::scripts().find(name).ok();
        own.or_else(|| self.registry.find(name).ok())
    }

    /// Returns the script of a comparison: that of the call, or the only one that the text names.
    fn script(&self, of: &Comparison) -> Option<String> {
        if self.args.script.is_some() {
            return self.args.script.clone();
        }
        let parameters = self.report.robot.as_ref().map(|robot| &robot.parameters);
        let test = parameters.and_then(|all| all.get("test")).cloned().unwrap_or_default();
        let near = self.named(&format!("{} {} {test}", of.metric, of.caption));
        near.or_else(|| self.named(self.report.source.as_deref().unwrap_or("")))
    }

    /// Returns the only script that a text names.
    fn named(&self, text: &str) -> Option<String> {
        let mut names: Vec<&str> = text
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-')
            .flat_map(|word| {
                let bare = word.trim_end_matches("_processes").trim_end_matches("_threads");
                [word, bare, bare.split('-').next().unwrap_or(bare)]
            })
            .filter(|word| word.len() > 3 && self.is_script(word))
            .collect();
        names.sort_unstable();
        names.dedup();
        match names[..] {
            [only] => Some(only.to_owned()),
            _ => None,
        }
    }

    fn is_script(&self, name: &str) -> bool {
        let is = |study: &Study| study.name() == name;
        gallery::scripts().scripts().chain(self.registry.scripts()).any(is)
    }

    /// Returns the parameters that the text decides: threads or processes, and the number of tasks.
    fn settings(&self, of: &Comparison, study: Option<&Study>) -> BTreeMap<String, String> {
        let mut set = BTreeMap::new();
        let has = |name: &str| study.is_some_and(|study| has_param(study, name));
        let robot = self.report.robot.as_ref();
        let value = |key: &str| robot.and_then(|robot| robot.parameters.get(key));
        let mode = value("mode").map(String::as_str);
        if let Some(mode) = mode.filter(|_| has(IN_THREADS)) {
            let threads = if mode == "thread" { "1" } else { "0" };
            set.insert(IN_THREADS.to_owned(), threads.to_owned());
        }
        let cpus = robot.and_then(mmscale_measured::Robot::cpus);
        if let (Some(tasks), Some(cpus), true) = (value("nr_task"), cpus, has(TASKS))
            && of.at.is_empty()
        {
            let percent = tasks.strip_suffix('%').and_then(|n| n.parse::<u32>().ok());
            let tasks = percent.map(|n| (cpus * n / 100).max(1)).or_else(|| tasks.parse().ok());
            set.extend(tasks.map(|tasks| (TASKS.to_owned(), tasks.to_string())));
        }
        for item in &self.args.set {
            if let Some((key, value)) = item.split_once('=') {
                set.insert(key.trim().to_owned(), value.trim().to_owned());
            }
        }
        if self.args.set.is_empty() && !set.contains_key(TASKS) {
            set.insert(OPEN.to_owned(), "number of tasks, placement, sizes".to_owned());
        }
        set
    }

    fn arms(&self, of: &Comparison, study: Option<&Study>) -> Vec<Arm> {
        let threads = study.is_some_and(|study| has_param(study, IN_THREADS));
        let arm = |(nth, name): (usize, &String)| {
            let given = self.args.policies.iter().find_map(|policy| {
                let (side, policies) = policy.split_once(':')?;
                (side == name).then(|| policies.to_owned())
            });
            let kind = match name.as_str() {
                "processes" if threads => Some("0"),
                "threads" if threads => Some("1"),
                _ => None,
            };
            let set = kind.map(|value| (IN_THREADS.to_owned(), value.to_owned()));
            let open = (nth > 0 && kind.is_none()).then(|| OPEN.to_owned());
            Arm { name: name.clone(), policy: given.or(open), set: set.into_iter().collect() }
        };
        of.sides.iter().enumerate().map(arm).collect()
    }

    /// Returns the hardware, as a robot describes it.
    fn measured_on(&self) -> Option<String> {
        let robot = self.report.robot.as_ref()?;
        let parts: Vec<&str> =
            robot.machine.iter().chain(&robot.hardware).map(String::as_str).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// Returns the parameter along which a curve goes.
    fn x(&self, of: &Comparison, study: Option<&Study>) -> String {
        let tasks = study.is_some_and(|study| has_param(study, TASKS)) && of.axis != "cpus";
        match &self.args.x {
            _ if of.at.is_empty() => String::new(),
            Some(x) => x.clone(),
            None if tasks && !of.axis.is_empty() => TASKS.to_owned(),
            None => OPEN.to_owned(),
        }
    }

    fn draft(&self, of: &'a Comparison, id: String) -> Draft<'a> {
        let or_open = |text: Option<String>| text.unwrap_or_else(|| OPEN.to_owned());
        let args = self.args;
        let script = self.script(of);
        let study = script.as_deref().and_then(|name| self.study(name));
        Draft {
            of,
            id,
            source: or_open(args.source.clone().or_else(|| self.report.source.clone())),
            measured_on: or_open(args.measured_on.clone().or_else(|| self.measured_on())),
            machine: or_open(args.machine.clone()),
            linux: or_open(args.linux.clone()),
            x: self.x(of, study.as_ref()),
            metric: match &args.metric {
                Some(metric) => metric.clone(),
                // The result of such a benchmark is its rate.
                None if is_rate(of) || script.as_ref() == Some(&of.metric) => {
                    "ops_per_s".to_owned()
                }
                None => OPEN.to_owned(),
            },
            set: self.settings(of, study.as_ref()),
            arms: self.arms(of, study.as_ref()),
            script: or_open(script),
        }
    }
}

fn has_param(study: &Study, name: &str) -> bool {
    study.params().iter().any(|param| param.name == name)
}

/// Returns whether a comparison is of a rate, by its unit or the name of its metric.
fn is_rate(of: &Comparison) -> bool {
    const WORDS: [&str; 9] = [
        "ops",
        "/s",
        "per_sec",
        "throughput",
        "per second",
        "will-it-scale",
        "rate",
        "tps",
        "processes",
    ];
    let of_words = |text: &str| {
        let lower = text.to_lowercase();
        WORDS.iter().any(|word| lower.contains(word)) && !lower.contains("time")
    };
    // will-it-scale counts operations of threads, too.
    let columns = of.sides.iter().any(|side| side == "processes") || of.metric == "threads";
    match of.unit.as_str() {
        "" => of_words(&of.metric) || of_words(&of.caption) || columns,
        unit => of_words(unit),
    }
}

/// Makes an item of each comparison.
pub(super) fn items<'a>(known: &Known<'a>, found: &'a [Comparison]) -> Vec<Draft<'a>> {
    let mut ids: Vec<String> = vec![];
    let mut all = vec![];
    for of in found {
        let mut id: String =
            of.metric.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
        let parts: Vec<&str> = id.split('-').filter(|part| !part.is_empty()).collect();
        id = parts[..parts.len().min(ID)].join("-");
        if id.is_empty() {
            id = format!("line-{}", of.line);
        }
        let same = ids.iter().filter(|other| **other == id).count();
        ids.push(id.clone());
        if same > 0 {
            id = format!("{id}-line-{}", of.line);
        }
        all.push(known.draft(of, id));
    }
    all
}

/// Returns what has to be filled, for all items together.
pub(super) fn open(items: &[Draft<'_>]) -> Vec<String> {
    let text = text(Path::new(""), items);
    let Ok(file) = toml::from_str::<BTreeMap<String, Vec<gallery::Item>>>(&text) else {
        return vec![];
    };
    let mut all: Vec<String> = vec![];
    for what in file.values().flatten().flat_map(gallery::Item::open) {
        if !all.contains(&what) {
            all.push(what);
        }
    }
    all
}

/// Formats a string of TOML.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn table(set: &BTreeMap<String, String>) -> String {
    let key = |key: &str| {
        let bare = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        if bare && !key.is_empty() { key.to_owned() } else { quoted(key) }
    };
    let pairs: Vec<String> =
        set.iter().map(|(name, value)| format!("{} = {}", key(name), quoted(value))).collect();
    format!("{{ {} }}", pairs.join(", "))
}

/// Formats the file.
pub(super) fn text(file: &Path, items: &[Draft<'_>]) -> String {
    let mut text = format!(
        "# Items of the gallery, made by `mmscale claim {}`. Figures are those of the text. A \
         field\n\
         # that is \"{OPEN}\" is not in the text: fill it, or give it to `mmscale claim`. Then:\n\
         # mmscale profile fidelity ./item.toml\n",
        mmscale_document::plain(&file.display().to_string()).replace('\n', " ")
    );
    for item in items {
        one(&mut text, item).expect("a string takes all that is written");
    }
    text
}

fn one(text: &mut String, item: &Draft<'_>) -> std::fmt::Result {
    let Comparison { line, caption, metric, unit, axis, at, values, only_changes, .. } = item.of;
    let title = match (metric.as_str(), caption.as_str()) {
        ("", caption) => caption.to_owned(),
        (metric, "") => metric.to_owned(),
        (metric, caption) if metric == caption => metric.to_owned(),
        (metric, caption) => format!("{metric}: {caption}"),
    };
    let title = if title.is_empty() { format!("the table at line {line}") } else { title };
    writeln!(text, "\n[[item]]\nid = {}\ntitle = {}", quoted(&item.id), quoted(&title))?;
    writeln!(text, "source = {}", quoted(&item.source))?;
    writeln!(text, "measured_on = {}\nseen = \"open\"", quoted(&item.measured_on))?;
    writeln!(text, "machine = {}\nscript = {}", quoted(&item.machine), quoted(&item.script))?;
    writeln!(text, "linux = {}", quoted(&item.linux))?;
    if !item.set.is_empty() {
        writeln!(text, "set = {}", table(&item.set))?;
    }
    writeln!(text, "metric = {}", quoted(&item.metric))?;
    let unit = match only_changes {
        true => "% of the base",
        false if unit.is_empty() => "1",
        false => unit,
    };
    writeln!(text, "unit = {}", quoted(unit))?;
    if !at.is_empty() {
        let axis = if axis.is_empty() { String::new() } else { format!("  # {axis}") };
        writeln!(text, "x = {}{axis}\nat = {at:?}", quoted(&item.x))?;
    }
    let effect = (item.arms.len() > 1).then_some("\"effect\"");
    let curve = (at.len() > 1).then_some("\"curve\"");
    let compare: Vec<&str> = effect.into_iter().chain(curve).collect();
    let compare = if compare.is_empty() { "\"level\"".to_owned() } else { compare.join(", ") };
    writeln!(text, "compare = [{compare}]")?;
    for (arm, figures) in item.arms.iter().zip(values) {
        writeln!(text, "[[item.arm]]\nname = {}", quoted(&arm.name))?;
        if let Some(policy) = &arm.policy {
            writeln!(text, "policy = {}", quoted(policy))?;
        }
        if !arm.set.is_empty() {
            writeln!(text, "set = {}", table(&arm.set))?;
        }
        writeln!(text, "published = {figures:?}")?;
    }
    Ok(())
}
