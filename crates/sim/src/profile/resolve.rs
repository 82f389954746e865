//! Conversion of a file's numbers to the engine's form.

use super::base::{ProfileSource, merge, title};
use super::error::{nearest, replaced};
use super::kernels::time_key;
use super::{
    Clock, Costs, Disturbance, Gaps, Lengths, Limits, LineCosts, Merged, Noise, Profile,
    ProfileError, ProfileFile, Profiles, Section, SwapDevice, Topology, instructions_key, op_key,
};
use mmscale_arch::{MAX_CPUS, MAX_NODES, Op};
use mmscale_document::Fingerprint;
use std::cell::RefCell;
use std::collections::BTreeSet;

/// The largest number of frames: the range of frame numbers.
pub(super) const MAX_FRAMES: u64 = u32::MAX as u64 - 1;
/// The most address spaces whose invalidations can be broadcast: x86 has 12 bits for their numbers.
const MAX_SPACES: u64 = 1 << 12;
/// The slowest step in a profile: 10 s. It keeps sums far from overflow.
const MAX_NS: f64 = 1e10;
/// The slowest instruction in a profile: 100 ns.
const MAX_INSTRUCTION_NS: f64 = 100.0;
/// The most instructions of an operation.
const MAX_INSTRUCTIONS: f64 = 1e7;

impl Profiles {
    /// Merges `file` with its bases, and resolves it as [`Merged::resolve`] does. `name` is the
    /// profile's name, also in messages. The path of a base begins at the current folder.
    pub fn resolve(&self, name: &str, file: &ProfileFile) -> Result<Profile, ProfileError> {
        merge(self, name, file.clone(), ProfileSource::Memory)?.resolve()
    }
}

/// Resolves a file whose bases are files or profiles of `machines/`, as [`Profiles::resolve`] does.
pub fn resolve(name: &str, file: &ProfileFile) -> Result<Profile, ProfileError> {
    Profiles::default().resolve(name, file)
}

impl Merged {
    /// Checks every number and converts it to the engine's form.
    pub fn resolve(&self) -> Result<Profile, ProfileError> {
        let topology = topology(self)?;
        let memory = Reader::new(self, "memory", &self.file.memory);
        let timer = Reader::new(self, "timer", &self.file.timer);
        let costs = Reader::new(self, "costs", &self.file.costs);
        let profile = Profile {
            name: self.name.clone(),
            description: self.file.description.clone(),
            hash: hash(&self.file),
            bases: self.bases.iter().map(|base| title(base)).filter(|_| self.own).collect(),
            topology,
            node_pages: memory.count("node_pages", 1, MAX_FRAMES / topology.nodes as u64)?,
            page_bytes: page_bytes(&memory)?,
            limits: limits(&memory)?,
            tlb_broadcast_spaces: memory.count("tlb_broadcast_spaces", 0, MAX_SPACES)? as u32,
            hz: timer.count("hz", 1, 10_000)? as u32,
            costs: priced(
                &costs,
                &memory,
                entered(ops(self, &costs)?, costs.ps("entry_extra_ns")?),
            )?,
            swap: swap(self)?,
            noise: noise(self)?,
            clock: clock(self, &topology)?,
        };
        memory.finish()?;
        timer.finish()?;
        costs.finish()?;
        Ok(profile)
    }
}

/// Reads the limits of the page allocator, which a profile need not have.
fn limits(memory: &Reader<'_>) -> Result<Limits, ProfileError> {
    let or_none = |key, high| memory.or(0, key, |key| memory.count(key, 0, high));
    Ok(Limits {
        dma32_pages: or_none("dma32_pages", 1 << 20)? as u32,
        min_free_kib: or_none("min_free_kib", 1 << 30)?,
        pcp_batch: or_none("pcp_batch", 1024)? as u32,
    })
}

/// Adds what mitigations cost to each entry into the kernel.
fn entered(mut op_ps: [u64; Op::ALL.len()], extra_ps: u64) -> [u64; Op::ALL.len()] {
    [Op::Syscall, Op::FaultEntry].into_iter().for_each(|op| op_ps[op as usize] += extra_ps);
    op_ps
}

fn priced(
    costs: &Reader<'_>,
    memory: &Reader<'_>,
    op_ps: [u64; Op::ALL.len()],
) -> Result<Costs, ProfileError> {
    Ok(Costs {
        op_ps,
        line: lines(costs)?,
        frame_hidden_1024: costs.share("frame_hidden_percent", 100.0)?,
        atomic_ps: costs.ps("atomic_ns")?,
        far_add_ps: costs.or(0, "far_add_ns", |key| costs.ps(key))?,
        lock_ps: costs.ps("lock_ns")?,
        unlock_ps: costs.ps("unlock_ns")?,
        handoff_fixed_ps: costs.ps("handoff_fixed_ns")?,
        handoff_lines_1024: costs.times("handoff_lines", 64.0)?,
        ipi_send_ps: costs.ps("ipi_send_ns")?,
        ipi_delivery_ps: costs.ps("ipi_delivery_ns")?,
        irq_ps: costs.ps("irq_ns")?,
        tlb_broadcast_ps: costs.ps("tlb_broadcast_ns")?,
        tlb_serial_ps: costs.or(0, "tlb_serial_ns", |key| costs.ps(key))?,
        switch_ps: costs.ps("switch_ns")?,
        wake_ps: costs.ps("wake_ns")?,
        idle_exit_ps: costs.ps("idle_exit_ns")?,
        idle_spread_1024: costs.or(0, "idle_spread_percent", |key| costs.share(key, 200.0))?,
        idle_deep_exit_ps: costs.or(0, "idle_deep_exit_ns", |key| costs.ps(key))?,
        idle_deep_after_ps: costs.or(0, "idle_deep_after_ns", |key| costs.ps(key))?,
        node_bytes_per_us: memory.count("node_bytes_per_us", 1, u64::from(u32::MAX))?,
        write_traffic_1024: memory.times("write_traffic", 4.0)?,
        cluster_cache_kib: memory.count("cluster_cache_kib", 1, u64::from(u32::MAX / 2))? as u32,
        jitter_1024: costs.share("jitter_percent", 50.0)?,
        instruction_ps: unstated(costs, 0)?,
        hold_instruction_ps: unstated(costs, 1)?,
    })
}

/// Reads one of [`Costs::UNSTATED`].
fn unstated(costs: &Reader<'_>, which: usize) -> Result<u64, ProfileError> {
    let (key, usual_ns) = Costs::UNSTATED[which];
    let ns = costs.or(usual_ns, key, |key| costs.number(key, 0.0, MAX_INSTRUCTION_NS))?;
    Ok((ns * 1000.0).round() as u64)
}

/// Reads the time of an instruction of an operation, in ns.
fn instruction(costs: &Reader<'_>, op: Op) -> Result<f64, ProfileError> {
    let which = Costs::UNSTATED.iter().position(|(key, _)| *key == time_key(op));
    Ok(unstated(costs, which.expect("it is one of them"))? as f64 / 1000.0)
}

/// Hashes every key and value; ranges, sources and descriptions are left out, and so is a number
/// that a profile would have if it did not state it.
fn hash(file: &ProfileFile) -> u64 {
    let mut hash = Fingerprint::new();
    for (_, section) in file.sections() {
        let stated = || {
            let usual = |key: &str, value| Costs::UNSTATED.contains(&(key, value));
            section.iter().filter(move |(key, number)| !usual(key, number.value))
        };
        hash.add(stated().count() as u64);
        for (key, number) in stated() {
            hash.add_str(key);
            hash.add(number.value.to_bits());
        }
    }
    hash.finish()
}

fn topology(of: &Merged) -> Result<Topology, ProfileError> {
    let topology = Reader::new(of, "topology", &of.file.topology);
    let cpus = topology.count("cpus", 1, MAX_CPUS as u64)? as usize;
    let smt = topology.count("smt", 1, cpus as u64)? as usize;
    let cluster = topology.count("cluster", 1, cpus as u64)? as usize;
    let nodes = topology.count("nodes", 1, (cpus.min(MAX_NODES)) as u64)? as usize;
    if !cpus.is_multiple_of(nodes) {
        let reason = format!("= {nodes} does not divide cpus = {cpus}; use a divisor");
        return Err(topology.wrong("nodes", reason));
    }
    let node = cpus / nodes;
    if !node.is_multiple_of(cluster) {
        let reason =
            format!("= {cluster} does not divide the {node} CPUs of a node; use a divisor");
        return Err(topology.wrong("cluster", reason));
    }
    if !cluster.is_multiple_of(smt) {
        let reason = format!("= {smt} does not divide cluster = {cluster}; use a divisor");
        return Err(topology.wrong("smt", reason));
    }
    topology.finish()?;
    Ok(Topology { cpus, smt, cluster, nodes })
}

fn swap(of: &Merged) -> Result<SwapDevice, ProfileError> {
    let swap = Reader::new(of, "swap", &of.file.swap);
    let device = SwapDevice {
        read_ps: swap.ps("read_ns")?,
        write_ps: swap.ps("write_ns")?,
        bytes_per_us: swap.count("bytes_per_us", 1, u64::from(u32::MAX))?,
        depth: swap.count("depth", 1, 65_536)? as usize,
    };
    swap.finish()?;
    Ok(device)
}

/// Reads the clock. If the section is not empty, all of its keys are required.
fn clock(of: &Merged, topology: &Topology) -> Result<Clock, ProfileError> {
    if of.file.clock.is_empty() {
        return Ok(Clock::default());
    }
    let clock = Reader::new(of, "clock", &of.file.clock);
    let mhz = |key| clock.number(key, 100.0, 10_000.0);
    let read = Clock {
        reference_mhz: mhz("reference_mhz")?,
        one_core_mhz: mhz("one_core_mhz")?,
        half_cores_mhz: mhz("half_cores_mhz")?,
        all_cores_mhz: mhz("all_cores_mhz")?,
        smt_work_1024: clock.share("smt_work_percent", 400.0)?,
        smt_spin_1024: clock.share("smt_spin_percent", 400.0)?,
        small: cores(&clock, ["small_cpus", "small_speed_percent"])?,
        middle: cores(&clock, ["middle_cpus", "middle_speed_percent"])?,
    };
    clock.finish()?;
    let smaller = read.small.0 + read.middle.0;
    if smaller > topology.cpus {
        let reason =
            format!("with middle_cpus makes {smaller} of {} CPUs; make it less", topology.cpus);
        return Err(clock.wrong("small_cpus", reason));
    }
    Ok(read)
}

/// Reads the number of CPUs of one kind of core, and their speed; none if the file does not say it.
fn cores(clock: &Reader<'_>, [cpus, speed]: [&str; 2]) -> Result<(usize, u32), ProfileError> {
    if !clock.numbers.contains_key(cpus) && !clock.numbers.contains_key(speed) {
        return Ok((0, 1024));
    }
    let count = clock.count(cpus, 0, MAX_CPUS as u64)? as usize;
    let speed_1024 = (clock.number(speed, 1.0, 400.0)? * 10.24).round() as u32;
    Ok((count, speed_1024))
}

/// Reads the noise. If the section is not empty, all of its keys are required.
fn noise(of: &Merged) -> Result<Noise, ProfileError> {
    if of.file.noise.is_empty() {
        return Ok(Noise::default());
    }
    let noise = Reader::new(of, "noise", &of.file.noise);
    let both = Noise {
        stolen: Some(disturbance(&noise, "stolen")?),
        irq_off: Some(disturbance(&noise, "handler")?),
    };
    noise.finish()?;
    Ok(both)
}

/// Reads one kind of disturbance: exponential gaps, lengths with a tail.
fn disturbance(noise: &Reader<'_>, what: &str) -> Result<Disturbance, ProfileError> {
    let key = |rest: &str| format!("{what}_{rest}");
    let gap_ms = noise.count(&key("gap_ms"), 1, 1_000_000_000)?;
    let least_ns = noise.count(&key("least_ns"), 1, MAX_NS as u64)?;
    let most_ns = noise.count(&key("most_ns"), 1, MAX_NS as u64)?;
    if most_ns < least_ns {
        let reason = format!("= {most_ns} is below {}; make it more", key("least_ns"));
        return Err(noise.wrong(&key("most_ns"), reason));
    }
    let doubles_1024 = noise.share(&key("doubles_percent"), 90.0)?;
    Ok(Disturbance {
        period_ns: gap_ms * 1_000_000,
        gaps: Gaps::Random,
        lengths: Lengths::Tail { least_ns, most_ns, doubles_1024 },
    })
}

fn page_bytes(memory: &Reader<'_>) -> Result<u32, ProfileError> {
    let bytes = memory.count("page_bytes", 4096, 65536)? as u32;
    if ![4096, 16_384, 65_536].contains(&bytes) {
        let reason = format!("= {bytes} is not the size of a page; use 4096, 16384 or 65536");
        return Err(memory.wrong("page_bytes", reason));
    }
    Ok(bytes)
}

fn lines(costs: &Reader<'_>) -> Result<LineCosts, ProfileError> {
    Ok(LineCosts {
        own_ps: costs.ps("line_own_ns")?,
        smt_ps: costs.ps("line_smt_ns")?,
        cluster_ps: costs.ps("line_cluster_ns")?,
        node_ps: costs.ps("line_node_ns")?,
        remote_ps: costs.ps("line_remote_ns")?,
        memory_ps: costs.ps("line_memory_ns")?,
    })
}

/// Reads the time of each operation: its own, or that of its instructions.
fn ops(of: &Merged, costs: &Reader<'_>) -> Result<[u64; Op::ALL.len()], ProfileError> {
    let ops = Reader::new(of, "ops", &of.file.ops);
    let counts = Reader::new(of, "instructions", &of.file.instructions);
    let mut op_ps = [0; Op::ALL.len()];
    for op in Op::ALL {
        let (key, count) = (op_key(op), instructions_key(op));
        op_ps[op as usize] = match (ops.has(&key), counts.has(&count)) {
            (true, true) => {
                let reason = format!("and ops.{key} are both stated; remove one of them");
                return Err(counts.wrong(&count, reason));
            }
            (false, true) => {
                let ns = counts.number(&count, 0.0, MAX_INSTRUCTIONS)? * instruction(costs, op)?;
                (ns * 1000.0).round() as u64
            }
            (_, false) => ops.ps(&key)?,
        };
    }
    ops.finish()?;
    counts.finish()?;
    Ok(op_ps)
}

/// Reads the numbers of one section, and records which keys were requested. A missing key is
/// reported only at the end, after the unknown ones: most often it is an unknown key, misspelt.
struct Reader<'a> {
    of: &'a Merged,
    section: &'a str,
    numbers: &'a super::Section,
    asked: RefCell<BTreeSet<String>>,
}

impl<'a> Reader<'a> {
    fn new(of: &'a Merged, section: &'a str, numbers: &'a Section) -> Self {
        Self { of, section, numbers, asked: RefCell::default() }
    }

    fn has(&self, key: &str) -> bool {
        self.numbers.contains_key(key)
    }

    /// Reads a number that need not be there.
    fn or<T>(
        &self,
        absent: T,
        key: &str,
        read: impl FnOnce(&str) -> Result<T, ProfileError>,
    ) -> Result<T, ProfileError> {
        if self.has(key) { read(key) } else { Ok(absent) }
    }

    /// Reads a time in ns; returns picoseconds.
    fn ps(&self, key: &str) -> Result<u64, ProfileError> {
        Ok((self.number(key, 0.0, MAX_NS)? * 1000.0).round() as u64)
    }

    /// Reads a whole number between `low` and `high`.
    fn count(&self, key: &str, low: u64, high: u64) -> Result<u64, ProfileError> {
        let value = self.number(key, low as f64, high as f64)?;
        if value.fract() != 0.0 {
            return Err(self.wrong(key, format!("= {value} is not a whole number; make it one")));
        }
        Ok(value as u64)
    }

    /// Reads a percentage up to `high`; returns it in 1/1024.
    fn share(&self, key: &str, high: f64) -> Result<u32, ProfileError> {
        Ok((self.number(key, 0.0, high)? * 10.24).round() as u32)
    }

    /// Reads a number up to `high`; returns it in 1/1024.
    fn times(&self, key: &str, high: f64) -> Result<u32, ProfileError> {
        Ok((self.number(key, 0.0, high)? * 1024.0).round() as u32)
    }

    fn number(&self, key: &str, low: f64, high: f64) -> Result<f64, ProfileError> {
        self.asked.borrow_mut().insert(key.to_owned());
        let Some(number) = self.numbers.get(key) else {
            // `finish` reports it. The smallest value passes every check until then.
            return Ok(low);
        };
        let value = number.value;
        if !(value >= low && value <= high) {
            let reason = format!("= {value} is not between {low} and {high}; correct the value");
            return Err(self.wrong(key, reason));
        }
        match number.problem() {
            Some(reason) => Err(self.wrong(key, reason)),
            None => Ok(value),
        }
    }

    fn wrong(&self, key: &str, reason: String) -> ProfileError {
        // Groups that do not fit together are an error in the file that combines them.
        let together = self.section == "topology";
        let file = if together { &self.of.name } else { self.of.file_of(self.section, key) };
        ProfileError::Number { file: file.to_owned(), key: self.full(key), reason }
    }

    fn full(&self, key: &str) -> String {
        format!("{}.{key}", self.section)
    }

    fn finish(&self) -> Result<(), ProfileError> {
        let asked = self.asked.borrow();
        if let Some(key) = self.numbers.keys().find(|key| !asked.contains(*key)) {
            let missing = || asked.iter().filter(|key| !self.numbers.contains_key(*key));
            let nearest = nearest(key, missing().map(String::as_str))
                .or_else(|| nearest(key, asked.iter().map(String::as_str)));
            let file = self.of.file_of(self.section, key).to_owned();
            if let Some(now) = replaced(key) {
                return Err(ProfileError::OldKey { file, key: self.full(key), now });
            }
            return Err(ProfileError::UnknownKey { file, key: self.full(key), nearest });
        }
        match asked.iter().find(|key| !self.numbers.contains_key(*key)) {
            Some(key) => {
                Err(ProfileError::MissingKey { file: self.of.name.clone(), key: self.full(key) })
            }
            None => Ok(()),
        }
    }
}
