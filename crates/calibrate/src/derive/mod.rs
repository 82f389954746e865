//! Derives the profile of another machine from partial knowledge and a base profile.
//!
//! The CPU topology comes from the caller or from `lscpu`, the cost of cache-line transfers from a
//! matrix of core-to-core latencies. Everything else is inherited from the base.

mod latencies;
mod lscpu;

use mmscale_sim::profile::{
    self, Clock, Number, Profile, ProfileError, ProfileFile, Profiles, Section, Topology,
};
use thiserror::Error;

use std::collections::BTreeMap;

use lscpu::{Given, Kind, Lscpu};

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
    /// The pages of the machine are not those of the base.
    #[error(
        "the machine has pages of {own} bytes and base `{base}` of {of_base}; choose another base \
         (mmscale list profiles)"
    )]
    Pages {
        /// The size of a page of the machine.
        own: u32,
        /// The base.
        base: String,
        /// The size of a page of the base.
        of_base: u32,
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
    /// The output of `lscpu` or of `numactl -H`, in any form.
    pub lscpu: Option<Text>,
    /// The capacity of each CPU by its number, for cores of several kinds; empty if not known.
    pub capacities: BTreeMap<u64, f64>,
    /// The memory of the machine and its settings, from files of the machine.
    pub memory: Option<Memory>,
    /// A matrix of core-to-core latencies.
    pub latencies: Option<Text>,
    /// Whether latencies whose order contradicts their distance are taken.
    pub force: bool,
}

/// The memory of a machine, according to files of its kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The files, for sources.
    pub source: String,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Managed pages of a node with memory: the mean.
    pub node_pages: u64,
    /// Managed pages of the DMA32 zone; 0 if there is none.
    pub dma32_pages: u64,
    /// The sum of the min watermarks, in KiB.
    pub min_free_kib: u64,
    /// The batch of page caches of normal zones.
    pub pcp_batch: u64,
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
    let given = Given {
        cluster: known.groups.cluster,
        smt: known.groups.smt,
        capacities: Some(&known.capacities).filter(|of| !of.is_empty()),
    };
    let said = known.lscpu.as_ref().map(|text| Lscpu::read(text, given)).transpose()?;
    let (groups, source) = match (&said, &known.lscpu) {
        (Some(said), Some(text)) => (said.groups, format!("lscpu of the machine: {}", text.name)),
        _ => (known.groups, format!("the machine, as given to `mmscale profile {command}`")),
    };
    let mut file = ProfileFile {
        base: Some(known.base.clone()),
        topology: topology(groups, &source),
        ..ProfileFile::default()
    };
    let of_base = known.profiles.resolve(
        command,
        &ProfileFile { base: Some(known.base.clone()), ..ProfileFile::default() },
    )?;
    if let Some(said) = &said {
        file.clock = kinds(&said.kinds, &of_base, &source);
    }
    let inherited = known.profiles.resolve(command, &file)?;
    let topology = inherited.topology;
    let mib = said.as_ref().and_then(|said| said.node_mib);
    if let Some(memory) = &known.memory {
        file.memory = memory_of(memory, &known.base, &inherited)?;
    } else if let Some(bytes) = known.node_bytes.or(mib.map(|mib| mib << 20)) {
        let page = inherited.page_bytes;
        if !bytes.is_multiple_of(u64::from(page)) {
            return Err(DeriveError::Memory { bytes, page });
        }
        let pages = (bytes / u64::from(page)) as f64;
        file.memory.insert("node_pages".to_owned(), exactly(pages, &source));
    }
    if let Some(kib) = said.as_ref().and_then(|said| said.cache_kib) {
        file.memory.insert("cluster_cache_kib".to_owned(), exactly(kib as f64, &source));
    }
    known.profiles.resolve(command, &file)?;
    file.description = known.description.clone().unwrap_or_else(|| {
        let model = said.as_ref().and_then(|said| said.model.as_deref());
        describe(&topology, model, said.as_ref().map_or(0, |said| said.kinds.len()))
    });
    let mut notes = said.as_ref().map_or(Vec::new(), |said| said.notes.clone());
    if let Some(text) = &known.latencies {
        let places = said.as_ref().and_then(|said| said.places.as_deref());
        if places.is_none() && (topology.smt > 1 || topology.cluster < topology.cpus) {
            notes.push(numbering(&topology));
        }
        let rows = latencies::Rows { places, force: known.force };
        file.costs = latencies::costs(text, &topology, rows, &mut notes)?;
        known.profiles.resolve(command, &file)?;
    }
    Ok(Derived { file, notes })
}

/// Returns the keys of cores of several kinds. Without any, those of the base are set to none.
fn kinds(kinds: &[Kind], base: &Profile, source: &str) -> Section {
    const KEYS: [[&str; 2]; 2] =
        [["small_cpus", "small_speed_percent"], ["middle_cpus", "middle_speed_percent"]];
    let smaller = kinds.split_last().map_or(&[][..], |(_, smaller)| smaller);
    let of_base = [base.clock.small, base.clock.middle];
    let mut section = Section::new();
    for (at, ([cpus, speed], (base_cpus, _))) in KEYS.into_iter().zip(of_base).enumerate() {
        match smaller.get(at) {
            Some(kind) => {
                section.insert(cpus.to_owned(), exactly(kind.cpus as f64, source));
                let number = if kind.capacity {
                    Some(exactly(kind.percent, &format!("cpu_capacity of the machine ({source})")))
                } else {
                    // A clock says less than a speed that was measured on a relative.
                    (base_cpus == 0).then(|| Number {
                        value: kind.percent,
                        range: [(kind.percent / 3.0).max(1.0), kind.percent],
                        source: format!(
                            "assumption: as its largest clock, {source}; range: a \
                                         small core does less in a cycle"
                        ),
                    })
                };
                section.extend(number.map(|number| (speed.to_owned(), number)));
            }
            None if base_cpus > 0 => {
                section.insert(cpus.to_owned(), exactly(0.0, source));
            }
            None => {}
        }
    }
    // The other keys of the section are needed: a machine of one speed has none.
    if !section.is_empty() && base.clock == Clock::default() {
        for key in ["reference_mhz", "one_core_mhz", "half_cores_mhz", "all_cores_mhz"] {
            let clock = Number { source: format!("assumption: {CLOCK}"), ..exactly(1000.0, "") };
            section.insert(key.to_owned(), clock);
        }
        for key in ["smt_work_percent", "smt_spin_percent"] {
            let clock = Number { source: format!("assumption: {CLOCK}"), ..exactly(100.0, "") };
            section.insert(key.to_owned(), clock);
        }
    }
    section
}

/// Why a clock is written that does not change anything.
const CLOCK: &str = "the base has no clock; all are equal, so that only the kind of core counts";

/// Returns the memory of the machine as the simulated one has it: node by node the same, with a
/// DMA32 zone in the first one.
fn memory_of(memory: &Memory, base: &str, of: &Profile) -> Result<Section, DeriveError> {
    let Memory { source, page_bytes, node_pages, dma32_pages, min_free_kib, pcp_batch } = memory;
    if *page_bytes != of.page_bytes {
        let (own, of_base) = (*page_bytes, of.page_bytes);
        return Err(DeriveError::Pages { own, base: base.to_owned(), of_base });
    }
    let keys = [
        ("node_pages", node_pages),
        ("dma32_pages", dma32_pages),
        ("min_free_kib", min_free_kib),
        ("pcp_batch", pcp_batch),
    ];
    let known = keys.into_iter().filter(|(_, value)| **value > 0);
    Ok(known.map(|(key, value)| (key.to_owned(), exactly(*value as f64, source))).collect())
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
fn describe(topology: &Topology, model: Option<&str>, kinds: usize) -> String {
    let Topology { cpus, smt, cluster, nodes } = topology;
    let model = model.map_or(String::new(), |model| format!("{model}: "));
    let s = |n: usize| if n == 1 { "" } else { "s" };
    let kinds = if kinds > 0 { format!(", cores of {kinds} kinds") } else { String::new() };
    format!(
        "{model}{cpus} CPU{}, {nodes} node{}, {cluster} CPU{} to a last-level cache, {smt} \
         thread{} a core{kinds}",
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
