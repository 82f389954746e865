//! A recording of the kernel's side as a document: a comparison needs nothing else, so it can be
//! made on another computer than the one that was traced.

use super::CountsError;
use super::kernel::{Cache, Facts, Kernel, read};
use super::program::{self, ATTEMPTS, FOREIGN, KINDS, PAST_EMPTY, Part, Step, Watcher, busy_pages};
use super::reading::{self, mark};
use super::tracing::{Event, Instance, Tracefs};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use mmscale_harness::Interrupt;
use mmscale_linux::{Config, Failure, Linux, Shared};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The form of the document.
const SCHEMA: &str = "mmscale/counts-recording/1";
/// The most bytes of a document that is not compressed.
const LIMIT_BYTES: u64 = 1 << 30;
/// The most CPUs of a kernel.
const MOST_CPUS: usize = 8192;
/// The longest time that the program may take beyond the time in which CPUs are kept busy, in ns.
const LIMIT_NS: u64 = 240_000_000_000;
/// Pages that the run may use beyond those of the program.
const SPARE_PAGES: u64 = 65_536;
/// Page tables are freed after a grace period.
const GRACE: Duration = Duration::from_millis(200);

/// A recording of the kernel's side: facts about it, and the events that the program caused.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    schema: String,
    pub(super) facts: Facts,
    /// How long CPUs were kept busy, in ns.
    pub(super) busy_ns: u64,
    pub(super) caches: Caches,
    /// Ticks of CPU 1 that the hypervisor had taken when the calls began and ended.
    pub(super) stolen_ticks: [u64; 2],
    /// For each CPU, the events that a comparison reads.
    pub(super) traces: Vec<Vec<Event>>,
}

/// Pages in the page cache of CPU 0, and its `high`, at marks of the trace.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Caches {
    /// Before the program takes pages.
    pub(super) start: [u32; 2],
    /// When it has freed them.
    pub(super) after: [u32; 2],
    /// When it begins to rest.
    pub(super) at_rest: [u32; 2],
}

/// The program's own notes: pages and `high` of the page cache before and after each attempt, and
/// when it begins to rest.
type Notes = [[u32; 2]; 2 * ATTEMPTS + 1];

/// Puts marks into the trace.
#[derive(Clone)]
struct Marks {
    path: Arc<str>,
    /// The file of the CPUs that are traced.
    mask: Arc<str>,
    caches: Shared<Notes>,
    /// Attempts that have ended.
    attempts: Shared<u32>,
    /// Times that another task ran on the CPU until the last attempt began, and whether it did
    /// since.
    losses: Shared<u64>,
    is_undisturbed: Shared<bool>,
    /// The masks of all CPUs, and of all but CPU 0.
    masks: Arc<[String; 2]>,
    stolen_ticks: Shared<[u64; 2]>,
}

impl Marks {
    fn write(&self, edge: &str, step: Step) {
        // A mark that is missing is noticed when the trace is read.
        // tidy: opened: a file of tracefs
        let _ = std::fs::write(&*self.path, mark(edge, step));
    }
    /// Marks an edge of a step, and notes the page cache of CPU 0 at that moment.
    fn write_with(&self, edge: &str, step: Step, at: usize) -> [u32; 2] {
        let cache = Cache::look_and(0, || self.write(edge, step));
        let cache = cache.map_or([0, 0], |cache| [cache.count, cache.high]);
        self.caches.change(|caches| caches[at] = cache);
        cache
    }
    fn attempt(&self) -> usize {
        self.attempts.get() as usize
    }
    /// Traces CPU 0 or not: what surrounds calls is not compared, and has many events.
    fn trace_cpu_0(&self, is_traced: bool) {
        // tidy: opened: a file of tracefs
        let _ = std::fs::write(&*self.mask, &self.masks[usize::from(!is_traced)]);
    }
    fn note_stolen(&self, at: usize) {
        let stolen = read("/proc/stat").map_or(0, |stat| stolen_ticks(&stat, 1));
        self.stolen_ticks.change(|all| all[at] = stolen);
    }
}

/// Returns how often another task has run on the CPU of this thread.
fn losses() -> u64 {
    let status = read("/proc/thread-self/status").unwrap_or_default();
    let of = |line: &str| {
        let (name, number) = line.split_once(':')?;
        name.ends_with("voluntary_ctxt_switches").then(|| number.trim().parse::<u64>().ok())?
    };
    status.lines().filter_map(of).sum()
}

/// Writes CPUs as tracefs reads them: hexadecimal words of 32 CPUs, the last ones first.
fn mask(cpus: Range<usize>) -> String {
    let word = |at: usize| {
        let is_in = |bit: &usize| cpus.contains(&(at * 32 + bit));
        let bits = (0..32).filter(is_in).fold(0_u32, |bits, bit| bits | 1 << bit);
        format!("{bits:08x}")
    };
    let words: Vec<String> = (0..cpus.end.div_ceil(32)).rev().map(word).collect();
    words.join(",")
}

/// Returns the ticks of a CPU that a hypervisor has taken, by the text of /proc/stat.
fn stolen_ticks(stat: &str, cpu: usize) -> u64 {
    let name = format!("cpu{cpu}");
    let own = stat.lines().find(|line| line.split(' ').next() == Some(&name));
    // The eighth number.
    own.and_then(|line| line.split_whitespace().nth(8)?.parse().ok()).unwrap_or(0)
}

impl Watcher<Linux> for Marks {
    fn begin(&self, _: &Linux, step: Step) {
        match step {
            Step::Pages | Step::Release(_) => {}
            Step::Rest => {
                self.write_with("begin", step, 2 * ATTEMPTS);
            }
            Step::Beside => {
                self.note_stolen(0);
                self.write("begin", step);
            }
            Step::Call(_) => {
                self.trace_cpu_0(true);
                self.write("begin", step);
            }
            Step::Busy | Step::Works(_) => self.write("begin", step),
        }
    }
    fn end(&self, _: &Linux, step: Step) {
        match step {
            Step::Release(_) => {}
            Step::Pages => {
                self.write_with("end", step, 2 * self.attempt() + 1);
                self.attempts.change(|attempts| *attempts += 1);
                let is_undisturbed = self.losses.get() == losses();
                self.is_undisturbed.change(|is| *is = is_undisturbed);
            }
            Step::Beside => {
                self.write("end", step);
                self.note_stolen(1);
            }
            Step::Call(at) => {
                self.write("end", step);
                // Page tables of calls that take pages are traced from before the call.
                let next = KINDS.get(at + 1);
                self.trace_cpu_0(next.is_none_or(|next| next.call.takes_pages()));
            }
            Step::Busy | Step::Rest | Step::Works(_) => self.write("end", step),
        }
    }
    fn cached_pages(&self, _: &Linux) -> u64 {
        self.losses.change(|all| *all = losses());
        u64::from(self.write_with("begin", Step::Pages, 2 * self.attempt())[0])
    }
    fn is_enough(&self) -> bool {
        self.is_undisturbed.get() || self.attempt() == ATTEMPTS
    }
}

impl Recording {
    /// Runs the program on this computer's kernel. Every CPU is kept busy for `busy` first, so that
    /// its ticks are seen.
    pub fn make(busy: Duration, interrupt: &Interrupt) -> Result<Self, CountsError> {
        let busy_ns = busy.as_nanos() as u64;
        let tracefs = Tracefs::look()?;
        let facts = Facts::look(tracefs.root)?;
        let kernel = Kernel::of(&facts)?;
        let trace = Instance::new(&tracefs)?;
        let marks = Marks {
            path: trace.marker().into(),
            caches: Shared::default(),
            attempts: Shared::default(),
            losses: Shared::default(),
            is_undisturbed: Shared::default(),
            stolen_ticks: Shared::default(),
            mask: trace.mask().into(),
            masks: Arc::new([0, 1].map(|first| mask(first..facts.cpus))),
        };
        trace.watch(&tracefs, &facts)?;
        run(&kernel, &marks, busy_ns, interrupt)?;
        std::thread::sleep(GRACE);
        trace.stop()?;
        let events =
            (0..kernel.cpus).map(|cpu| trace.events(cpu)).collect::<Result<Vec<_>, _>>()?;
        let chosen = reading::undisturbed(&events[0])?;
        let caches = marks.caches.get();
        let caches = Caches {
            start: caches[2 * chosen],
            after: caches[2 * chosen + 1],
            at_rest: caches[2 * ATTEMPTS],
        };
        if [caches.start, caches.after, caches.at_rest].iter().any(|&[_, high]| high == 0) {
            let what = "the program could not read /proc/zoneinfo: repeat the call";
            return Err(CountsError::Run(what.to_owned()));
        }
        let kept = |(cpu, events)| reading::kept(events, cpu, chosen);
        Ok(Self {
            schema: SCHEMA.to_owned(),
            facts,
            busy_ns,
            caches,
            stolen_ticks: marks.stolen_ticks.get(),
            traces: events.into_iter().enumerate().map(kept).collect(),
        })
    }
    /// Writes it, compressed.
    pub fn write(&self, to: impl Write) -> io::Result<()> {
        let mut to = GzEncoder::new(to, Compression::fast());
        serde_json::to_writer(&mut to, self)?;
        to.finish()?.flush()
    }
    /// Reads one that was written. An error says in a sentence what is wrong with it.
    pub fn read(bytes: &[u8]) -> Result<Self, CountsError> {
        let mut text = Vec::new();
        GzDecoder::new(bytes)
            .take(LIMIT_BYTES)
            .read_to_end(&mut text)
            .map_err(|why| CountsError::Recording(why.to_string()))?;
        let found: Self =
            serde_json::from_slice(&text).map_err(|why| CountsError::Recording(why.to_string()))?;
        let wrong = |what: &str| Err(CountsError::Recording(what.to_owned()));
        match &found {
            _ if found.schema != SCHEMA => wrong("another version of mmscale wrote it"),
            _ if !(2..=MOST_CPUS).contains(&found.facts.cpus) => {
                wrong("its CPUs are not 2 to 8192")
            }
            _ if found.traces.len() != found.facts.cpus => wrong("it lacks the trace of a CPU"),
            _ => Ok(found),
        }
    }
}

/// Runs the program.
fn run(
    kernel: &Kernel,
    marks: &Marks,
    busy_ns: u64,
    interrupt: &Interrupt,
) -> Result<(), CountsError> {
    let (limits, _) = kernel.cache.limits(kernel.version, kernel.cpus);
    let busy_pages = kernel.cpus as u64 * busy_pages(busy_ns);
    let cached = u64::from(limits.high_max.max(kernel.cache.count));
    let pages = busy_pages + cached + PAST_EMPTY + FOREIGN;
    let config = Config {
        cpus: kernel.cpus,
        memory_bytes: (pages + SPARE_PAGES) * mmscale_system::PAGE_BYTES,
        processes: kernel.cpus as u64 + 8,
        limit_ns: busy_ns + LIMIT_NS,
        interrupt: Some(interrupt.flag()),
    };
    let own = marks.clone();
    let part = Part::All { busy_ns, wait: kernel.wait, huge: kernel.has_huge };
    let body = move |system: &Linux| {
        let ran = program::run(system, part, &own);
        ran.expect("the calls of the program succeed");
    };
    mmscale_linux::run(&config, Box::new(body)).map(|_| ()).map_err(|why| match why {
        Failure::Interrupted => CountsError::Interrupted,
        why => CountsError::Run(why.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_that_is_none_is_refused() {
        assert!(matches!(Recording::read(b"no archive"), Err(CountsError::Recording(_))));
        let mut bytes = GzEncoder::new(Vec::new(), Compression::fast());
        bytes.write_all(b"{}").unwrap();
        let why = Recording::read(&bytes.finish().unwrap()).unwrap_err().to_string();
        assert!(why.contains("missing field"), "{why}");
    }

    #[test]
    fn a_recording_that_was_written_is_read() {
        let facts = Facts {
            release: "6.12.1".to_owned(),
            hz: 250,
            is_guest: true,
            is_emulated: true,
            cpus: 2,
            sees_interrupts: true,
            sees_drains: true,
            has_huge: false,
            min_free_kb: 67_584,
            watermark_scale: 10,
            parameters: "quiet".to_owned(),
            zoneinfo: "Node 0, zone   Normal\n".to_owned(),
        };
        let events = reading::trace(&[(7, "mm_page_alloc: page=1 pfn=0x10 order=0")]);
        let recording = Recording {
            schema: SCHEMA.to_owned(),
            facts,
            busy_ns: 10,
            caches: Caches { start: [1, 2], after: [3, 4], at_rest: [5, 6] },
            stolen_ticks: [7, 8],
            traces: vec![events.clone(), vec![]],
        };
        let written = |recording: &Recording| {
            let mut bytes = Vec::new();
            recording.write(&mut bytes).unwrap();
            Recording::read(&bytes)
        };
        let read = written(&recording).unwrap();
        assert_eq!((read.traces, read.caches.at_rest), (vec![events, vec![]], [5, 6]));
        let one = Recording { traces: vec![vec![]], ..recording };
        let why = written(&one).unwrap_err().to_string();
        assert!(why.ends_with("it lacks the trace of a CPU"), "{why}");
    }

    #[test]
    fn a_mask_has_words_of_32_cpus() {
        assert_eq!((mask(0..4).as_str(), mask(1..4).as_str()), ("0000000f", "0000000e"));
        assert_eq!(mask(1..34), "00000003,fffffffe");
    }

    #[test]
    fn stolen_ticks_are_those_of_the_cpu() {
        let stat =
            "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 80 9 10\ncpu1 1 2 3 4 5 6 7 81 9\n";
        assert_eq!((stolen_ticks(stat, 1), stolen_ticks(stat, 2)), (81, 0));
    }
}
