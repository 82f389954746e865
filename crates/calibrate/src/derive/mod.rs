//! The profile file of another machine: what is known of it, over a base that has the rest.
//!
//! Its CPUs come from the caller or from `lscpu`, the cost of moving a cache line from a matrix of
//! core-to-core latencies. Everything else is the base's.

mod latencies;
mod lscpu;

use mmscale_sim::profile::{self, Number, ProfileError, ProfileFile, Profiles, Section, Topology};
use thiserror::Error;

use lscpu::Lscpu;

/// Why no profile was derived.
#[derive(Debug, Error)]
pub enum DeriveError {
    /// Nothing is known of the CPUs.
    #[error("a profile of another machine needs its CPUs: give --cpus N or --lscpu FILE")]
    NoCpus,
    /// The output of `lscpu` does not say what is needed, or says it of a machine that a profile
    /// cannot describe.
    #[error("cannot use `{file}` as output of lscpu: {why}")]
    Lscpu {
        /// The file.
        file: String,
        /// What is wrong and what to do.
        why: String,
    },
    /// The file has no matrix of latencies.
    #[error("cannot use `{file}` as a core-to-core CSV: {why}")]
    Latencies {
        /// The file.
        file: String,
        /// What is wrong and what to do.
        why: String,
    },
    /// Base and numbers make no profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

/// CPUs and their groups, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// CPUs, hardware threads counted.
    pub cpus: Option<usize>,
    /// Memory nodes.
    pub nodes: Option<usize>,
    /// CPUs behind one last-level cache, hardware threads counted.
    pub cluster: Option<usize>,
    /// Hardware threads of a core.
    pub smt: Option<usize>,
}

/// A text with the name of its file.
#[derive(Clone, Debug)]
pub struct Text {
    /// The file's name.
    pub name: String,
    /// What is in it.
    pub text: String,
}

/// What is known of a machine.
#[derive(Clone, Debug)]
pub struct Known {
    /// Where a base that is a name is found.
    pub profiles: Profiles,
    /// The profile that has the other numbers.
    pub base: String,
    /// What machine it is, in words.
    pub description: Option<String>,
    /// CPUs and their groups. Those that neither this nor `lscpu` says are the base's.
    pub groups: Groups,
    /// The output of `lscpu -J -e` or `lscpu -J`.
    pub lscpu: Option<Text>,
    /// A matrix of core-to-core latencies.
    pub latencies: Option<Text>,
}

/// A derived profile.
#[derive(Clone, Debug)]
pub struct Derived {
    /// The file: the base's name and what differs.
    pub file: ProfileFile,
    /// What the reader should know of how it was derived, a sentence each.
    pub notes: Vec<String>,
}

/// Derives a profile from what is known. The result is checked: it resolves.
pub fn derive(known: &Known) -> Result<Derived, DeriveError> {
    let said = known.lscpu.as_ref().map(|text| Lscpu::read(text, known.groups.cluster));
    let said = said.transpose()?;
    let (groups, source) = match (&said, &known.lscpu) {
        (Some(said), Some(text)) => (said.groups, format!("lscpu of the machine: {}", text.name)),
        _ => (known.groups, "the machine, as given to `mmscale profile new`".to_owned()),
    };
    if groups.cpus.is_none() {
        return Err(DeriveError::NoCpus);
    }
    let mut file = ProfileFile {
        base: Some(known.base.clone()),
        topology: topology(groups, &source),
        ..ProfileFile::default()
    };
    let topology = known.profiles.resolve("new", &file)?.topology;
    file.description = known.description.clone().unwrap_or_else(|| {
        let model = said.as_ref().and_then(|said| said.model.as_deref());
        describe(&topology, model)
    });
    let mut notes = said.as_ref().map_or(Vec::new(), |said| said.notes.clone());
    if let Some(text) = &known.latencies {
        let places = said.as_ref().and_then(|said| said.places.as_deref());
        if places.is_none() && (topology.smt > 1 || topology.cluster < topology.cpus) {
            notes.push(numbering(&topology));
        }
        file.costs = latencies::costs(text, &topology, places, &mut notes)?;
        known.profiles.resolve("new", &file)?;
    }
    Ok(Derived { file, notes })
}

fn topology(groups: Groups, source: &str) -> Section {
    let Groups { cpus, nodes, cluster, smt } = groups;
    let keys = [("cpus", cpus), ("nodes", nodes), ("cluster", cluster), ("smt", smt)];
    let number = |count: usize| {
        let value = count as f64;
        Number { value, range: [value, value], source: source.to_owned() }
    };
    let known = keys.into_iter().filter_map(|(key, count)| Some((key.to_owned(), number(count?))));
    known.collect()
}

/// The machine in words.
fn describe(topology: &Topology, model: Option<&str>) -> String {
    let Topology { cpus, smt, cluster, nodes } = topology;
    let model = model.map_or(String::new(), |model| format!("{model}: "));
    let s = |n: usize| if n == 1 { "" } else { "s" };
    format!(
        "{model}{cpus} CPU{}, {nodes} node{}, {cluster} CPU{} to a last-level cache, {smt} \
         thread{} a core",
        s(*cpus),
        s(*nodes),
        s(*cluster),
        s(*smt)
    )
}

/// What is assumed of the rows of a matrix if `lscpu` does not say it.
fn numbering(topology: &Topology) -> String {
    let siblings = match topology.smt {
        1 => String::new(),
        smt => format!("the {smt} threads of a core in adjacent rows, "),
    };
    format!(
        "rows of the CSV are taken in the order of a profile's CPUs: {siblings}cores of a \
         last-level cache together, nodes one after the other; Linux often numbers CPUs in another \
         way: give --lscpu with the output of `lscpu -J -e`"
    )
}

/// The text of a derived file, with comments on how to go on.
pub fn text(derived: &Derived) -> String {
    let whole = profile::write(&derived.file);
    let (head, sections) = whole.split_once("\n[topology]\n").unwrap_or((&whole, ""));
    let mut text = format!("{HEAD}{head}\n{TOPOLOGY}[topology]\n{sections}");
    if derived.file.costs.is_empty() {
        text.push_str(COSTS);
    }
    text
}

const HEAD: &str = "\
# What is not here is inherited from the base; `mmscale profile show FILE` has every number.
";

const TOPOLOGY: &str = "\
# cluster: CPUs behind one last-level cache (L3), threads counted: 8 cores with smt = 2 are 16.
# CPU numbers: threads of a core are adjacent (0 and 1), cores fill clusters, clusters fill nodes.
";

const COSTS: &str = "
# A number of your own: its value, the range that is possible, and a source, which begins with
# `measured: `, `assumption: ` or the name of what was published.
# [costs]
# handoff_ns = { value = 300, range = [200, 600], source = \"assumption: as on a machine like it\" }
";
