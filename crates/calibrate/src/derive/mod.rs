//! Derives the profile of another machine from partial knowledge and a base profile.
//!
//! The CPU topology comes from the caller or from `lscpu`, the cost of cache-line transfers from a
//! matrix of core-to-core latencies. Everything else is inherited from the base.

mod latencies;
mod lscpu;

use mmscale_sim::profile::{self, Number, ProfileError, ProfileFile, Profiles, Section, Topology};
use thiserror::Error;

use lscpu::Lscpu;

/// Why no profile was derived.
#[derive(Debug, Error)]
pub enum DeriveError {
    /// The CPU topology is unknown.
    #[error("a profile of another machine needs its CPU topology: give --cpus N or --lscpu FILE")]
    NoCpus,
    /// The output of `lscpu` lacks required data, or the machine cannot be described by a profile.
    #[error("cannot use `{file}` as output of lscpu: {why}")]
    Lscpu {
        /// The name of the file.
        file: String,
        /// The problem, with advice.
        why: String,
    },
    /// The file is not a matrix of latencies.
    #[error("cannot use `{file}` as a core-to-core CSV: {why}")]
    Latencies {
        /// The name of the file.
        file: String,
        /// The problem, with advice.
        why: String,
    },
    /// The memory of a node has no whole number of pages.
    #[error("a node cannot have {bytes} bytes of memory: its pages have {page} bytes")]
    Memory {
        /// The memory of a node.
        bytes: u64,
        /// The size of a page of the base.
        page: u32,
    },
    /// The base and the given numbers do not form a valid profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

/// Sizes of the groups of CPUs, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// Number of CPUs, counting hardware threads.
    pub cpus: Option<usize>,
    /// Number of memory nodes.
    pub nodes: Option<usize>,
    /// CPUs per last-level cache, counting hardware threads.
    pub cluster: Option<usize>,
    /// Hardware threads per core.
    pub smt: Option<usize>,
}

/// The content of a file.
#[derive(Clone, Debug)]
pub struct Text {
    /// The name of the file.
    pub name: String,
    /// The content of the file.
    pub text: String,
}

/// The known properties of a machine.
#[derive(Clone, Debug)]
pub struct Known {
    /// The profiles among which a base is looked up by name.
    pub profiles: Profiles,
    /// The profile from which the other numbers are inherited.
    pub base: String,
    /// A description of the machine.
    pub description: Option<String>,
    /// The CPU topology. Values that neither this nor `lscpu` provides are inherited.
    pub groups: Groups,
    /// Memory of a node, in bytes; that of the base if it is not known.
    pub node_bytes: Option<u64>,
    /// The output of `lscpu -J -e` or `lscpu -J`.
    pub lscpu: Option<Text>,
    /// A matrix of core-to-core latencies.
    pub latencies: Option<Text>,
}

/// A derived profile.
#[derive(Clone, Debug)]
pub struct Derived {
    /// The profile file: the name of the base, and the numbers that differ.
    pub file: ProfileFile,
    /// Notes on the derivation for the user, one sentence each.
    pub notes: Vec<String>,
}

/// Derives a profile and verifies that it resolves.
pub fn derive(known: &Known) -> Result<Derived, DeriveError> {
    if known.groups.cpus.is_none() && known.lscpu.is_none() {
        return Err(DeriveError::NoCpus);
    }
    derived(known, "new")
}

/// Derives a profile as [`derive()`] does, for `mmscale profile fit`. Without known CPUs it has
/// those of the base.
pub fn derive_or_inherit(known: &Known) -> Result<Derived, DeriveError> {
    derived(known, "fit")
}

/// Derives a profile for a command below `mmscale profile`.
fn derived(known: &Known, command: &str) -> Result<Derived, DeriveError> {
    let said = known.lscpu.as_ref().map(|text| Lscpu::read(text, known.groups.cluster));
    let said = said.transpose()?;
    let (groups, source) = match (&said, &known.lscpu) {
        (Some(said), Some(text)) => (said.groups, format!("lscpu of the machine: {}", text.name)),
        _ => (known.groups, format!("the machine, as given to `mmscale profile {command}`")),
    };
    let mut file = ProfileFile {
        base: Some(known.base.clone()),
        topology: topology(groups, &source),
        ..ProfileFile::default()
    };
    let inherited = known.profiles.resolve(command, &file)?;
    let topology = inherited.topology;
    if let Some(bytes) = known.node_bytes {
        let page = inherited.page_bytes;
        if !bytes.is_multiple_of(u64::from(page)) {
            return Err(DeriveError::Memory { bytes, page });
        }
        let pages = (bytes / u64::from(page)) as f64;
        file.memory.insert("node_pages".to_owned(), exactly(pages, &source));
        known.profiles.resolve(command, &file)?;
    }
    if let Some(kib) = said.as_ref().and_then(|said| said.cache_kib) {
        file.memory.insert("cluster_cache_kib".to_owned(), exactly(kib as f64, &source));
    }
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
        known.profiles.resolve(command, &file)?;
    }
    Ok(Derived { file, notes })
}

fn topology(groups: Groups, source: &str) -> Section {
    let Groups { cpus, nodes, cluster, smt } = groups;
    let keys = [("cpus", cpus), ("nodes", nodes), ("cluster", cluster), ("smt", smt)];
    let number = |count: usize| exactly(count as f64, source);
    let known = keys.into_iter().filter_map(|(key, count)| Some((key.to_owned(), number(count?))));
    known.collect()
}

/// Returns a number that is known exactly.
fn exactly(value: f64, source: &str) -> Number {
    Number { value, range: [value, value], source: source.to_owned() }
}

/// Describes the machine in words.
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

/// Returns the assumption about the rows of a matrix without `lscpu`.
fn numbering(topology: &Topology) -> String {
    let siblings = match topology.smt {
        1 => String::new(),
        smt => format!("the {smt} threads of a core in adjacent rows, "),
    };
    format!(
        "rows of the CSV are assumed to be in the order of a profile's CPUs: {siblings}cores of a \
         last-level cache together, nodes one after the other; Linux often numbers CPUs \
         differently: give --lscpu with the output of `lscpu -J -e`"
    )
}

/// Returns the text of a derived file, with comments on further steps.
pub fn text(derived: &Derived) -> String {
    let whole = profile::write(&derived.file);
    let mut text = match whole.split_once("\n[topology]\n") {
        Some((head, sections)) => format!("{HEAD}{head}\n{TOPOLOGY}[topology]\n{sections}"),
        None => format!("{HEAD}{whole}"),
    };
    if derived.file.costs.is_empty() {
        text.push_str(COSTS);
    }
    text
}

const HEAD: &str = "\
# Numbers that are not listed are inherited from the base; `mmscale profile show FILE` lists all.
";

const TOPOLOGY: &str = "\
# cluster: CPUs behind one last-level cache (L3), threads counted: 8 cores with smt = 2 are 16.
# CPU numbers: threads of a core are adjacent (0 and 1), cores fill clusters, clusters fill nodes.
";

const COSTS: &str = "
# A number of your own: its value, the range that is possible, and a source, which begins with
# `measured: `, `derived from `, `assumption: ` or the name of what was published.
# [costs]
# atomic_ns = { value = 12, range = [6, 33], source = \"assumption: as on a machine like it\" }
";
