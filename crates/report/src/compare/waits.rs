//! Comparison of waits for locks where at least one side was measured by another tool: by lock
//! class and function, in figures that do not depend on the length of a measurement.

use std::collections::BTreeMap;

use mmscale_document::{
    ArmRecord, Counterpart, Document, MeasuredWait, Measurement, OTHER_CLASS, Target, counterpart,
};

use crate::number::{percent, scaled};
use crate::text::wrap;

/// The waits of one side.
#[derive(Clone, PartialEq, Debug)]
pub struct Waits {
    /// The origin: tool or study, computer, duration.
    pub title: String,
    /// Whether the locks are those of a simulated memory manager.
    pub simulated: bool,
    /// Time of all CPUs, in ns, if it is known.
    pub cpu_time_ns: Option<f64>,
    classes: BTreeMap<String, Sum>,
}

/// The waits for locks of one class.
#[derive(Clone, PartialEq, Debug, Default)]
struct Sum {
    /// Number of waits; `None` if some row has none.
    contentions: Option<u64>,
    total_ns: f64,
    max_ns: u64,
    by_function: BTreeMap<String, f64>,
}

/// Number of functions to name of a class, and of classes of which to name them.
const FUNCTIONS: usize = 3;
const CLASSES: usize = 3;
/// Minimum share of a function that is named.
const NAMED: f64 = 0.01;
/// Minimum share of the measured waits for a lock whose absence on the other side is reported.
const FELT: f64 = 0.05;

impl Waits {
    /// Returns the waits of a measurement.
    pub fn of_measurement(measured: &Measurement) -> Self {
        let cpus = measured.cpus.map(|cpus| format!("; {cpus} CPUs"));
        let window = measured.window_ns.map(|ns| format!(", {}", scaled(ns as f64, "ns")));
        let title = format!(
            "{}, {}{}{}",
            measured.file,
            measured.tool,
            cpus.unwrap_or_default(),
            window.unwrap_or_default()
        );
        let mut all = Self {
            title,
            simulated: false,
            cpu_time_ns: measured.cpu_time_ns(),
            classes: BTreeMap::new(),
        };
        measured.waits.iter().for_each(|wait| all.add_measured(wait));
        all
    }

    /// Returns the waits of an arm of a run.
    pub fn of_arm(document: &Document, arm: &ArmRecord) -> Self {
        let runs = arm.seeds.len().max(1) as f64;
        let whole = document.window_ns.map(|ns| runs * f64::from(document.cpus) * ns as f64);
        let title = format!(
            "{}, arm {}, on {}, {}, {} CPUs",
            document.study,
            arm.arm,
            document.on,
            document.machine(),
            document.cpus
        );
        let mut all = Self {
            title,
            simulated: document.on != Target::Live,
            cpu_time_ns: arm.cpu_time.map(|time| time.all_ns as f64).or(whole),
            classes: BTreeMap::new(),
        };
        for lock in arm.locks.iter().filter(|lock| lock.contentions > 0) {
            let sum = all.classes.entry(lock.class.clone()).or_insert_with(Sum::counted);
            sum.add(Some(lock.contentions), lock.wait_total_ns as f64, lock.wait_max_ns);
            *sum.by_function.entry(lock.site.clone()).or_default() += lock.wait_total_ns as f64;
        }
        all
    }

    fn add_measured(&mut self, wait: &MeasuredWait) {
        let total_ns = wait.wait_total_ns.unwrap_or(0) as f64;
        let sum = self.classes.entry(wait.class.clone()).or_insert_with(Sum::counted);
        sum.add(wait.contentions, total_ns, wait.wait_max_ns.unwrap_or(0));
        let counts: f64 = wait.waiters.iter().map(|site| site.contentions as f64).sum();
        for site in &wait.waiters {
            let part = total_ns * site.contentions as f64 / counts.max(1.0);
            *sum.by_function.entry(site.function.clone()).or_default() += part;
        }
        let function = site(&wait.path).or(wait.lock.as_ref()).or(wait.task.as_ref());
        if counts == 0.0 {
            let function = function.map_or("unknown", String::as_str).to_owned();
            *sum.by_function.entry(function).or_default() += total_ns;
        }
    }

    /// Returns the waits by the classes of the simulator, as far as it has them.
    fn by_counterpart(&self) -> BTreeMap<String, Sum> {
        let mut all = BTreeMap::<String, Sum>::new();
        for (class, sum) in &self.classes {
            let name = match counterpart(class) {
                Counterpart::Class(name) => name,
                Counterpart::Gap(_) | Counterpart::Unknown => class,
            };
            all.entry(name.to_owned()).or_insert_with(Sum::counted).merge(sum);
        }
        all
    }

    fn total_ns(&self) -> f64 {
        self.classes.values().map(|sum| sum.total_ns).sum()
    }
}

/// Returns the function that takes the lock. The caller of a function that does nothing else is
/// more informative.
fn site(path: &[String]) -> Option<&String> {
    match path {
        [.., caller, last] if last.starts_with("folio_lruvec_") => Some(caller),
        path => path.last(),
    }
}

impl Sum {
    fn counted() -> Self {
        Self { contentions: Some(0), ..Self::default() }
    }
    fn add(&mut self, contentions: Option<u64>, total_ns: f64, max_ns: u64) {
        self.contentions = self.contentions.zip(contentions).map(|(a, b)| a.saturating_add(b));
        self.total_ns += total_ns;
        self.max_ns = self.max_ns.max(max_ns);
    }
    fn merge(&mut self, other: &Self) {
        self.add(other.contentions, other.total_ns, other.max_ns);
        for (function, ns) in &other.by_function {
            *self.by_function.entry(function.clone()).or_default() += ns;
        }
    }
}

/// Formats two sides next to each other, with lines of at most [`WIDTH`](crate::WIDTH) columns.
pub fn waits_text(names: [&str; 2], sides: [&Waits; 2]) -> String {
    let mapped = sides.iter().any(|side| side.simulated);
    let classes: [BTreeMap<String, Sum>; 2] = sides.map(|side| {
        if mapped && !side.simulated { side.by_counterpart() } else { side.classes.clone() }
    });
    let totals = sides.map(Waits::total_ns);
    let share = |side: usize, class: &str| {
        classes[side].get(class).map_or(0.0, |sum| sum.total_ns / totals[side].max(1.0))
    };
    let mut keys: Vec<&String> = classes.iter().flat_map(BTreeMap::keys).collect();
    keys.sort_by(|a, b| {
        let largest = |class: &str| share(0, class).max(share(1, class));
        largest(b).total_cmp(&largest(a)).then_with(|| a.cmp(b))
    });
    keys.dedup();
    let mut lines = Vec::new();
    for (name, side) in names.iter().zip(sides) {
        lines.extend(wrap(&side.title, &format!("{name:<10}"), "          "));
    }
    lines.push(String::new());
    lines.push(format!("{:<12}{:>30}{:>30}", "", names[0], names[1]));
    let heading: String =
        ["waits", "CPU", "mean", "max"].iter().map(|cell| format!("{cell:>7}")).collect();
    lines.push(format!("{:<12}  {heading}  {heading}", "lock"));
    for class in &keys {
        let cells = |side: usize| cells(classes[side].get(*class), sides[side], totals[side]);
        lines.push(format!("{:<12.12}{}{}", class, cells(0), cells(1)));
    }
    for class in keys.iter().take(CLASSES) {
        for side in [0, 1] {
            let Some(sum) = classes[side].get(*class) else { continue };
            let text = functions(sum);
            if !text.is_empty() {
                lines.extend(wrap(&text, &format!("{class}, {}: ", names[side]), "  "));
            }
        }
    }
    lines.extend(missing(&keys, sides));
    for side in [0, 1].into_iter().filter(|&side| sides[side].simulated) {
        let absent: Vec<String> = keys
            .iter()
            .filter(|class| matches!(counterpart(class), Counterpart::Class(_)))
            .filter(|class| share(1 - side, class) >= FELT && share(side, class) < NAMED)
            .map(|class| format!("{class} ({})", percent(100.0 * share(1 - side, class))))
            .collect();
        if !sides[1 - side].simulated && !absent.is_empty() {
            let text = format!(
                "{}; the simulated workload does not wait for it: its changes say nothing about \
                 that lock",
                absent.join(", ")
            );
            lines.extend(wrap(&text, "not reproduced: ", "  "));
        }
    }
    let legend = "waits: share of all waited time; CPU: waited time per time of all CPUs, where \
                  the CPUs and the duration are known; mean and max of a wait";
    lines.extend(wrap(legend, "", "  "));
    let mut text = String::new();
    for line in lines {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn cells(sum: Option<&Sum>, side: &Waits, total_ns: f64) -> String {
    let none = || "-".to_owned();
    let Some(sum) = sum else { return format!("  {:>7}{:>7}{:>7}{:>7}", "-", "-", "-", "-") };
    let share = |part: f64| percent(100.0 * part);
    let of_cpu = side.cpu_time_ns.filter(|ns| *ns > 0.0).map(|ns| share(sum.total_ns / ns));
    let mean = sum.contentions.filter(|n| *n > 0).map(|n| short(sum.total_ns / n as f64));
    let longest = (sum.max_ns > 0).then(|| short(sum.max_ns as f64));
    format!(
        "  {:>7}{:>7}{:>7}{:>7}",
        share(sum.total_ns / total_ns.max(1.0)),
        of_cpu.unwrap_or_else(none),
        mean.unwrap_or_else(none),
        longest.unwrap_or_else(none)
    )
}

/// Formats a time with three digits.
fn short(ns: f64) -> String {
    let (size, unit) = match ns {
        x if x >= 1e9 => (1e9, "s"),
        x if x >= 1e6 => (1e6, "ms"),
        x if x >= 1e3 => (1e3, "us"),
        _ => (1.0, "ns"),
    };
    let x = ns / size;
    let decimals = if x < 9.995 { 2 } else { usize::from(x < 99.95) };
    if unit == "ns" { format!("{x:.0}ns") } else { format!("{x:.decimals$}{unit}") }
}

/// Formats the functions with the largest shares.
fn functions(sum: &Sum) -> String {
    let all = sum.total_ns.max(1.0);
    let mut sites: Vec<(&String, f64)> =
        sum.by_function.iter().map(|(name, ns)| (name, ns / all)).collect();
    sites.retain(|(_, share)| *share >= NAMED);
    sites.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    let sites = sites.iter().take(FUNCTIONS);
    let named: Vec<String> =
        sites.map(|(name, share)| format!("{name} {}", percent(100.0 * share))).collect();
    named.join(", ")
}

/// Names the classes that the simulated side cannot have.
fn missing(keys: &[&String], sides: [&Waits; 2]) -> Vec<String> {
    if sides.iter().all(|side| !side.simulated) {
        return vec![];
    }
    let simulated = |class: &str| {
        let known = |side: &Waits| side.simulated && side.classes.contains_key(class);
        let own = matches!(counterpart(class), Counterpart::Class(_));
        sides.iter().any(|side| known(side)) || own
    };
    let names: Vec<&str> = keys
        .iter()
        .filter(|class| !simulated(class))
        .map(|class| match counterpart(class) {
            Counterpart::Gap(name) => name,
            _ if class.as_str() == OTHER_CLASS => "locks of other subsystems",
            _ => class.as_str(),
        })
        .collect();
    if names.is_empty() {
        return vec![];
    }
    wrap(&names.join(", "), "not simulated: ", "  ")
}

/// Formats two sides as CSV with a row for each class and function, times in ns.
pub fn waits_csv(names: [&str; 2], sides: [&Waits; 2]) -> String {
    let mut text =
        String::from("side,class,function,wait_total_ns,class_contentions,class_max_ns\n");
    for (name, side) in names.iter().zip(sides) {
        for (class, sum) in &side.classes {
            for (function, ns) in &sum.by_function {
                let contentions = sum.contentions.map_or(String::new(), |n| n.to_string());
                let max_ns = sum.max_ns;
                let [class, function] = [class, function].map(|name| crate::csv::quoted(name));
                text.push_str(&format!(
                    "{name},{class},{function},{ns:.0},{contentions},{max_ns}\n"
                ));
            }
        }
    }
    text
}
