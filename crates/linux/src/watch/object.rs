//! The programs in the kernel: loading, attaching, and reading their sums.

use super::error::{WatchError, read};
use super::stretch::Stretches;
use super::{Plan, Sampling, Watch};
use aya::maps::{Array, HashMap, MapData, PerCpuArray, PerCpuHashMap, StackTraceMap};
use aya::programs::tp_btf::BtfTracePointLinkId;
use aya::programs::{BtfTracePoint, ProgramError};
use aya::{Btf, Ebpf, EbpfLoader, Pod};
use mmscale_document::LOG2_BUCKETS;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};

/// The compiled programs; `cargo xtask objects` compiles them from `bpf/watch.bpf.c`.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../bpf/watch.bpf.o");

/// Corresponds to `struct config` in the program.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Config {
    pub(crate) from_ns: u64,
    pub(crate) until_ns: u64,
    pub(crate) session: u32,
    pub(crate) batch_gap_ns: u32,
    pub(crate) holders: u32,
    pub(crate) sparse: u32,
    pub(crate) releases: u32,
    pub(crate) padding: u32,
}

/// Corresponds to `struct sums`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) count: u64,
    pub(crate) total_ns: u64,
    pub(crate) max_ns: u64,
    pub(crate) log2: [u64; LOG2_BUCKETS],
}

impl Sums {
    pub(crate) fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.total_ns += other.total_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.log2.iter_mut().zip(other.log2).for_each(|(sum, n)| *sum += n);
    }
}

/// Corresponds to `struct path`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Path {
    pub(crate) stack: i32,
    pub(crate) flags: u32,
    pub(crate) side: u32,
    pub(crate) holder: u32,
}

/// Corresponds to `struct batch`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Batch {
    pub(crate) last_ns: u64,
    pub(crate) folios: u64,
    pub(crate) begun: u64,
}

/// Statistics of batches.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Batches {
    pub(crate) count: u64,
    pub(crate) folios: u64,
}

impl Batches {
    /// Adds up the batches of all CPUs, recorded in one `share`th of the time. A batch is added
    /// within microseconds, so recording rarely starts in the middle of one.
    fn of(per_cpu: &[Batch], share: f64) -> Self {
        let sum = |of: fn(&Batch) -> u64| per_cpu.iter().map(of).sum::<u64>();
        let all = |seen: u64| (seen as f64 * share).round() as u64;
        Self { count: all(sum(|b| b.begun)), folios: all(sum(|b| b.folios)) }
    }
}

/// Corresponds to `struct calls`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Calls {
    pub(crate) delivery: Sums,
    pub(crate) run: Sums,
    pub(crate) total: Sums,
}

/// Corresponds to `struct holds`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holds {
    pub(crate) waits: Sums,
    pub(crate) whole: Sums,
}

// No padding: its bytes would have no value, and the kernel copies them.
const _: () = {
    assert!(size_of::<Config>() == 2 * 8 + 6 * 4);
    assert!(size_of::<Holds>() == 2 * size_of::<Sums>());
    assert!(size_of::<Sums>() == (3 + LOG2_BUCKETS) * 8);
    assert!(size_of::<Path>() == 4 * 4);
    assert!(size_of::<Batch>() == 3 * 8);
    assert!(size_of::<Calls>() == 3 * size_of::<Sums>());
};

// SAFETY: numbers without padding between them, as in the program.
unsafe impl Pod for Config {}
// SAFETY: as above.
unsafe impl Pod for Sums {}
// SAFETY: as above.
unsafe impl Pod for Path {}
// SAFETY: as above.
unsafe impl Pod for Batch {}
// SAFETY: as above.
unsafe impl Pod for Calls {}
// SAFETY: as above.
unsafe impl Pod for Holds {}

/// The programs, loaded and attached; dropping this unloads them.
pub(crate) struct Programs {
    ebpf: Ebpf,
    /// Tracepoints that this kernel does not have.
    pub(crate) missing: Vec<String>,
    /// Whether this kernel reports releases of contended locks, and they are observed.
    pub(crate) releases: bool,
    /// The program that is attached for a part of the time only.
    stretches: Option<Stretches>,
}

/// Returns an error's message with its causes.
fn causes(why: &dyn std::error::Error) -> String {
    let mut text = why.to_string();
    let mut cause = why.source();
    while let Some(why) = cause {
        text.push_str(": ");
        text.push_str(&why.to_string());
        cause = why.source();
    }
    text
}

impl Programs {
    /// Loads and attaches the programs of `plan`.
    pub(crate) fn load(plan: &Plan) -> Result<Self, WatchError> {
        let btf = Btf::from_sys_fs().map_err(|why| WatchError::Btf(causes(&why)))?;
        let refused = |why: aya::EbpfError| WatchError::Refused(causes(&why));
        let mut ebpf = EbpfLoader::new().btf(Some(&btf)).load(OBJECT).map_err(refused)?;
        let mut missing = Vec::new();
        let mut stretches = None;
        let releases =
            plan.watches.contains(&Watch::Locks) && offers(&mut ebpf, &btf, CONTENDED_RELEASE)?;
        for watch in &plan.watches {
            // The releases say more, of all locks.
            if *watch == Watch::Holders && releases {
                continue;
            }
            if *watch == Watch::Resched && may_recurse() {
                missing.push(NEED_RESCHED.to_owned());
                continue;
            }
            let sparse = *watch == Watch::Lru && plan.sampling() == Sampling::Sparse;
            for (program, points) in programs_of(*watch) {
                match attach(&mut ebpf, &btf, program, points) {
                    Ok(link) if sparse => {
                        stretches = Some(Stretches::new(&mut ebpf, program, link)?);
                    }
                    Ok(_) => {}
                    Err(Attach::NoSuchPoint) => missing.push((*program).to_owned()),
                    Err(Attach::Failed(why)) => return Err(why),
                }
            }
        }
        let empty = |ebpf: &mut Ebpf| {
            Array::<_, Sums>::try_from(ebpf.map_mut("EMPTY")?).ok()?.set(0, Sums::default(), 0).ok()
        };
        empty(&mut ebpf).ok_or_else(|| read("the map EMPTY"))?;
        Ok(Self { ebpf, missing, releases, stretches })
    }
    /// Sets what counts.
    pub(crate) fn configure(&mut self, config: Config) -> Result<(), WatchError> {
        let map = self.ebpf.map_mut("CONFIG").ok_or_else(|| read("no map CONFIG"))?;
        let mut map = Array::<_, Config>::try_from(map).map_err(read)?;
        map.set(0, config, 0).map_err(read)?;
        match &mut self.stretches {
            Some(stretches) => stretches.begin((config.from_ns, config.until_ns)),
            None => Ok(()),
        }
    }
    fn map<'a, T: TryFrom<&'a aya::maps::Map, Error = aya::maps::MapError>>(
        &'a self,
        name: &str,
    ) -> Result<T, WatchError> {
        T::try_from(self.ebpf.map(name).ok_or_else(|| read(name))?).map_err(read)
    }
    fn sums(&self, name: &str) -> Result<BTreeMap<Path, Sums>, WatchError> {
        let map: PerCpuHashMap<&MapData, Path, Sums> = self.map(name)?;
        let mut all = BTreeMap::<Path, Sums>::new();
        for entry in map.iter() {
            let (path, per_cpu) = entry.map_err(read)?;
            let sum = all.entry(path).or_default();
            per_cpu.iter().for_each(|one| sum.add(one));
        }
        Ok(all)
    }
    /// Returns waits for locks.
    pub(crate) fn waits(&self) -> Result<BTreeMap<Path, Sums>, WatchError> {
        self.sums("WAITS")
    }
    /// Returns phases of exits, and delays of task switches.
    pub(crate) fn phases(&self) -> Result<BTreeMap<Path, Sums>, WatchError> {
        self.sums("PHASES")
    }
    /// Returns waits by the release that ended them, and the holds before it.
    pub(crate) fn holds(&self) -> Result<Vec<(Path, Holds)>, WatchError> {
        let map: HashMap<&MapData, Path, Holds> = self.map("HELD_BY")?;
        map.iter().map(|entry| entry.map_err(read)).collect()
    }
    /// Returns calls between CPUs.
    pub(crate) fn calls(&self) -> Result<BTreeMap<Path, Calls>, WatchError> {
        let map: HashMap<&MapData, Path, Calls> = self.map("CALLS")?;
        map.iter().map(|entry| entry.map_err(read)).collect()
    }
    /// Returns the frames of a stack, innermost first.
    pub(crate) fn stack(&self, id: u32) -> Vec<u64> {
        let map: Result<StackTraceMap<&MapData>, _> = self.map("STACKS");
        let trace = map.ok().and_then(|map| map.get(&id, 0).ok());
        trace.map_or(Vec::new(), |trace| trace.frames().iter().map(|frame| frame.ip).collect())
    }
    /// Returns batches of folios that were added to LRU lists.
    pub(crate) fn batches(&self) -> Result<Batches, WatchError> {
        let share = self.stretches.as_ref().map_or(Some(1.0), Stretches::share);
        let Some(share) = share else { return Ok(Batches::default()) };
        let map: PerCpuArray<&MapData, Batch> = self.map("BATCH")?;
        Ok(Batches::of(&map.get(&0, 0).map_err(read)?, share))
    }
    /// Returns how often an event occurred, by its number in the program.
    pub(crate) fn happened(&self, what: u32) -> Result<u64, WatchError> {
        let map: PerCpuArray<&MapData, u64> = self.map("HAPPENED")?;
        Ok(map.get(&what, 0).map_err(read)?.iter().sum())
    }
}

enum Attach {
    NoSuchPoint,
    Failed(WatchError),
}

impl Attach {
    fn failed(program: &str, why: ProgramError) -> Self {
        Self::Failed(match why {
            ProgramError::LoadError { io_error, verifier_log } => {
                not_loaded(program, &io_error, &verifier_log)
            }
            why => WatchError::Refused(causes(&why)),
        })
    }
}

/// The verifier returns EACCES or EINVAL, and has a log; a process that may not load programs gets
/// EPERM.
fn not_loaded(program: &str, why: &std::io::Error, log: &dyn std::fmt::Display) -> WatchError {
    match why.raw_os_error() {
        Some(libc::EPERM) => WatchError::Refused(why.to_string()),
        _ => {
            let log = format!("{why}\n{log}");
            WatchError::Rejected { program: program.to_owned(), log }
        }
    }
}

/// The program that sees requests to reschedule.
const NEED_RESCHED: &str = "need_resched";

/// Whether a program on the tracepoint of requests to reschedule would panic this kernel. A task
/// that was preempted inside RCU requests a reschedule when it leaves RCU with preemption off. The
/// kernel enters and leaves RCU around each program, so the program's end requests again, before
/// the first request is noted: without end, until the stack is full. Kernels whose readers are not
/// preempted have no such function. Without the list of functions it is assumed.
fn may_recurse() -> bool {
    // tidy: opened: a file of /proc
    let functions = File::open("/proc/kallsyms").map(BufReader::new);
    functions.map_or(true, has_preemptible_readers)
}

fn has_preemptible_readers(functions: impl BufRead) -> bool {
    let mut names = functions.lines().map_while(Result::ok);
    names.any(|line| line.ends_with(" rcu_read_unlock_special"))
}

/// The program and the tracepoint of releases of locks for which others wait. Kernels before
/// Linux 7 do not have it, and nothing is missing then.
const CONTENDED_RELEASE: &str = "contended_release";

/// Attaches a program to the tracepoint of its name if this kernel has it, with the lock as its one
/// argument. Returns whether it has.
fn offers(ebpf: &mut Ebpf, btf: &Btf, program: &str) -> Result<bool, WatchError> {
    match attach(ebpf, btf, program, &[program]) {
        Ok(_) => Ok(true),
        Err(Attach::NoSuchPoint) => Ok(false),
        Err(Attach::Failed(why)) => Err(why),
    }
}

/// Attaches a program to the first of some tracepoints that this kernel has.
fn attach(
    ebpf: &mut Ebpf,
    btf: &Btf,
    program: &str,
    points: &[&str],
) -> Result<BtfTracePointLinkId, Attach> {
    let failed = |why| Attach::failed(program, why);
    let found = ebpf.program_mut(program).ok_or(Attach::NoSuchPoint)?;
    let found: &mut BtfTracePoint = found.try_into().map_err(failed)?;
    for point in points {
        match found.load(point, btf) {
            Ok(()) => return found.attach().map_err(failed),
            // The kernel has no tracepoint of that name.
            Err(ProgramError::Btf(_)) => {}
            Err(why) => return Err(failed(why)),
        }
    }
    Err(Attach::NoSuchPoint)
}

/// Returns the programs of a group, each with the tracepoints that it can be attached to.
fn programs_of(watch: Watch) -> &'static [(&'static str, &'static [&'static str])] {
    match watch {
        Watch::Locks => {
            &[("contention_begin", &["contention_begin"]), ("contention_end", &["contention_end"])]
        }
        Watch::Lru => &[("mm_lru_insertion", &["mm_lru_insertion"])],
        Watch::Calls => &[
            ("csd_queue_cpu", &["csd_queue_cpu"]),
            ("csd_function_entry", &["csd_function_entry"]),
            ("csd_function_exit", &["csd_function_exit"]),
        ],
        Watch::Exits => &[
            ("mmap_lock_start_locking", &["mmap_lock_start_locking"]),
            ("mmap_lock_acquire_returned", &["mmap_lock_acquire_returned"]),
            ("mmap_lock_released", &["mmap_lock_released"]),
        ],
        Watch::Oom => &[
            ("mark_victim", &["mark_victim"]),
            ("wake_reaper", &["wake_reaper"]),
            ("start_task_reaping", &["start_task_reaping"]),
            ("finish_task_reaping", &["finish_task_reaping"]),
            ("skip_task_reaping", &["skip_task_reaping"]),
            ("oom_score_adj_update", &["oom_score_adj_update"]),
        ],
        Watch::Resched => &[
            (NEED_RESCHED, &["sched_set_need_resched_tp", "sched_set_need_resched"]),
            ("sched_switch", &["sched_switch"]),
        ],
        Watch::Holders => &[
            ("mm_page_pcpu_drain", &["mm_page_pcpu_drain"]),
            ("mm_page_alloc_zone_locked", &["mm_page_alloc_zone_locked"]),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tracepoint_is_distinguished_from_a_refusal() {
        let skipped = |why: &str| {
            use std::io::Write as _;
            let line = format!("live-test skipped: a missing tracepoint: {why}\n");
            std::io::stderr().write_all(line.as_bytes()).expect("there is a standard error");
        };
        let Ok(btf) = Btf::from_sys_fs() else { return skipped("no BTF") };
        let Ok(mut ebpf) = EbpfLoader::new().btf(Some(&btf)).load(OBJECT) else {
            return skipped("no rights");
        };
        let mut attach = |points: &[&str]| attach(&mut ebpf, &btf, "contention_begin", points);
        assert!(matches!(attach(&["no_such_tracepoint"]), Err(Attach::NoSuchPoint)));
        // It is found under another name.
        assert!(attach(&["no_such_tracepoint", "contention_begin"]).is_ok());
    }

    /// The kernel follows each path through a program, and gives up after a million instructions.
    /// More CPUs make more paths.
    #[test]
    fn programs_are_far_below_the_limit_of_the_verifier() {
        const MOST: u32 = 100_000;
        let plan = Plan { watches: vec![Watch::Locks, Watch::Holders], ..Plan::default() };
        let Ok(programs) = Programs::load(&plan) else { return };
        for (name, program) in programs.ebpf.programs() {
            let Ok(info) = program.info() else { continue };
            if let Some(count) = info.verified_instruction_count() {
                assert!(count < MOST, "{name}: {count}");
                println!("{name}: {count}");
            }
        }
    }

    #[test]
    fn a_kernel_whose_readers_are_preempted_is_known_by_a_function() {
        let of = |text: &str| has_preemptible_readers(text.as_bytes());
        assert!(of("0 T schedule\n0 t rcu_read_unlock_special\n0 T x\n"));
        assert!(!of("0 T schedule\n0 t rcu_read_unlock_special_of_another\n"));
    }

    #[test]
    fn a_refusal_by_the_verifier_is_one_sentence_with_the_log_apart() {
        let refusal = |errno| {
            let why = std::io::Error::from_raw_os_error(errno);
            not_loaded("contention_end", &why, &"0: (bf) r6 = r1\nmath is not allowed")
        };
        let why = refusal(libc::EACCES);
        let text = why.to_string();
        assert!(text.contains("the BPF program contention_end") && !text.contains('\n'), "{text}");
        assert!(!text.contains("math"), "{text}");
        assert!(why.verifier_log().is_some_and(|log| log.contains("math")), "{why:?}");
        let why = refusal(libc::EPERM);
        assert!(matches!(why, WatchError::Refused(_)) && why.verifier_log().is_none(), "{why:?}");
    }

    #[test]
    fn batches_that_were_not_looked_at_are_as_those_that_were() {
        // Batches of 4, all recorded.
        let all = Batch { folios: 64, begun: 16, ..Batch::default() };
        assert_eq!(Batches::of(&[all, all], 1.0), Batches { count: 32, folios: 128 });
        // An eighth of the time.
        assert_eq!(Batches::of(&[all], 8.0), Batches { count: 128, folios: 512 });
        assert_eq!(Batches::of(&[Batch::default()], 8.0), Batches::default());
    }
}
