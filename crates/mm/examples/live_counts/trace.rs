//! A tracing instance, and what its events say.

use crate::kernel::{Kernel, read};
use std::fs;

/// Kilobytes of events kept for each CPU.
const BUFFER_KB: u32 = 32_768;

/// A tracing instance of our own; gone when this is dropped.
pub(crate) struct Instance {
    path: String,
}

/// One tracepoint, as one line of text says it.
pub(crate) struct Event {
    pid: u32,
    /// When, in us since boot.
    time_us: u64,
    name: String,
    args: String,
}

impl Instance {
    pub(crate) fn new(kernel: &Kernel) -> Result<Self, String> {
        let path = format!("{}/instances/mmscale_{}", kernel.tracefs, std::process::id());
        fs::create_dir(&path)
            .map_err(|why| format!("making the tracing instance {path}: {why}"))?;
        let instance = Self { path };
        instance.write("buffer_size_kb", &BUFFER_KB.to_string())?;
        instance.write("trace_clock", "mono")?;
        Ok(instance)
    }
    fn write(&self, file: &str, text: &str) -> Result<(), String> {
        let path = format!("{}/{file}", self.path);
        fs::write(&path, text).map_err(|why| format!("writing {text:?} to {path}: {why}"))
    }
    /// Watches `vmstat_update` and the arming of delayed work.
    pub(crate) fn watch_tick(&self, kernel: &Kernel) -> Result<(), String> {
        let tick = format!("function == {:#x}", kernel.vmstat_update);
        for event in ["workqueue/workqueue_execute_start", "workqueue/workqueue_execute_end"] {
            self.write(&format!("events/{event}/filter"), &tick)?;
            self.write(&format!("events/{event}/enable"), "1")?;
        }
        let timer = format!("function == {:#x}", kernel.delayed_work_timer_fn);
        self.write("events/timer/timer_start/filter", &timer)?;
        self.write("events/timer/timer_start/enable", "1")
    }
    /// Watches pages too.
    pub(crate) fn watch_pages(&self) -> Result<(), String> {
        for event in [
            "mm_page_alloc",
            "mm_page_alloc_zone_locked",
            "mm_page_free",
            "mm_page_free_batched",
            "mm_page_pcpu_drain",
        ] {
            self.write(&format!("events/kmem/{event}/enable"), "1")?;
        }
        Ok(())
    }
    pub(crate) fn stop(&self) -> Result<(), String> {
        self.write("tracing_on", "0")
    }
    /// The events of a CPU, in order. An error if the buffer was too small for them.
    pub(crate) fn events(&self, cpu: usize) -> Result<Vec<Event>, String> {
        let stats = read(&format!("{}/per_cpu/cpu{cpu}/stats", self.path))?;
        if !stats.lines().any(|line| line.trim() == "overrun: 0") {
            return Err(format!("events of CPU {cpu} were lost: the computer is too busy"));
        }
        let text = read(&format!("{}/per_cpu/cpu{cpu}/trace", self.path))?;
        Ok(text.lines().filter(|line| !line.starts_with('#')).filter_map(event_of).collect())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // The kernel switches the instance's events off itself. Nothing can be done if it refuses.
        let _ = fs::remove_dir(&self.path);
    }
}

/// `name-pid [cpu] flags seconds: event: arguments`.
fn event_of(line: &str) -> Option<Event> {
    let (task, rest) = line.split_once(" [")?;
    let (_, rest) = rest.split_once("] ")?;
    let (head, rest) = rest.split_once(": ")?;
    let (name, args) = rest.split_once(": ")?;
    let time = head.split_whitespace().next_back()?;
    let (seconds, us) = time.split_once('.')?;
    Some(Event {
        pid: task.trim().rsplit_once('-')?.1.parse().ok()?,
        time_us: seconds.parse::<u64>().ok()? * 1_000_000 + us.parse::<u64>().ok()?,
        name: name.to_owned(),
        args: args.to_owned(),
    })
}

impl Event {
    /// The argument `key=...`.
    fn arg(&self, key: &str) -> Option<&str> {
        let pairs = self.args.split([' ', '[', ']']).filter_map(|word| word.split_once('='));
        pairs.filter(|(name, _)| *name == key).map(|(_, value)| value).next()
    }
    fn number(&self, key: &str) -> Option<u64> {
        let text = self.arg(key)?;
        match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        }
    }
}

/// Pages moved in one hold, hold after hold.
#[derive(Default)]
pub(crate) struct Sizes {
    pub(crate) refills: Vec<u32>,
    pub(crate) frees: Vec<u32>,
    pub(crate) ticks: Vec<u32>,
}

/// A hold whose pages are being counted.
struct Hold {
    pid: u32,
    pages: u32,
    kind: HoldKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum HoldKind {
    Refill,
    Free,
    Tick,
}

impl Sizes {
    /// Sums up the events of this process and of the tick for the zone that starts at `start`.
    /// Pages are traced one by one; between two holds of one CPU there is another event, since
    /// each allocation and each free has its own.
    pub(crate) fn of(events: &[Event], start: u64) -> Self {
        let (mut sizes, mut hold) = (Self::default(), None::<Hold>);
        let ours = job_pid(events);
        let mut ticking = None;
        for event in events {
            let kind = match event.name.as_str() {
                "mm_page_alloc_zone_locked" => Some(HoldKind::Refill),
                "mm_page_pcpu_drain" if ticking == Some(event.pid) => Some(HoldKind::Tick),
                "mm_page_pcpu_drain" => Some(HoldKind::Free),
                _ => None,
            };
            let same = |hold: &Hold| Some(hold.kind) == kind && hold.pid == event.pid;
            if !hold.as_ref().is_some_and(same) {
                sizes.end(hold.take(), ours);
            }
            match event.name.as_str() {
                "workqueue_execute_start" => ticking = Some(event.pid),
                "workqueue_execute_end" => ticking = None,
                _ => {}
            }
            let Some(kind) = kind else { continue };
            let single = event.number("order") == Some(0);
            // Migratetype 1 is movable.
            let wanted =
                kind != HoldKind::Refill || single && event.number("migratetype") == Some(1);
            if wanted && event.number("pfn").is_some_and(|pfn| pfn >= start) {
                let pages = 1 << event.number("order").unwrap_or(0);
                let (pid, none) = (event.pid, 0);
                hold.get_or_insert(Hold { pid, pages: none, kind }).pages += pages;
            }
        }
        sizes.end(hold, ours);
        sizes
    }
    fn end(&mut self, hold: Option<Hold>, ours: Option<u32>) {
        match hold {
            Some(Hold { pages, kind: HoldKind::Tick, .. }) => self.ticks.push(pages),
            Some(Hold { pid, pages, kind }) if Some(pid) == ours => match kind {
                HoldKind::Refill => self.refills.push(pages),
                _ => self.frees.push(pages),
            },
            _ => {}
        }
    }
}

/// The thread that took most pages on this CPU.
fn job_pid(events: &[Event]) -> Option<u32> {
    let mut taken = std::collections::BTreeMap::<u32, usize>::new();
    for event in events.iter().filter(|event| event.name == "mm_page_alloc") {
        *taken.entry(event.pid).or_default() += 1;
    }
    taken.into_iter().max_by_key(|&(_, pages)| pages).map(|(pid, _)| pid)
}

/// A run of the tick, and how it armed itself again if it did.
pub(crate) struct Arming {
    /// When the run began, in us.
    pub(crate) begun_us: u64,
    /// Jiffies: now, the expiry that was asked for, the jiffy in which the wheel's bucket goes off.
    pub(crate) again: Option<[u64; 3]>,
}

/// The runs of the tick of a CPU.
pub(crate) fn armings(events: &[Event]) -> Vec<Arming> {
    let mut runs: Vec<Arming> = Vec::new();
    let mut ticking = None;
    for event in events {
        match event.name.as_str() {
            "workqueue_execute_start" => {
                ticking = Some(event.pid);
                runs.push(Arming { begun_us: event.time_us, again: None });
            }
            "workqueue_execute_end" => ticking = None,
            "timer_start" if ticking == Some(event.pid) => {
                let found = event.number("expires").zip(event.number("timeout"));
                let armed = found.zip(event.number("bucket_expiry"));
                if let (Some(run), Some(((expires, timeout), bucket))) = (runs.last_mut(), armed) {
                    run.again = Some([expires - timeout, expires, bucket]);
                }
            }
            _ => {}
        }
    }
    runs
}
