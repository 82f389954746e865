//! A tracing instance of our own, and the lines of its trace.

use super::CountsError;
use super::events::{DRAIN, EVENTS, INTERRUPTS};
use super::kernel::{Facts, needs, read};
use mmscale_linux::Leftovers;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// Where tracefs is mounted.
const ROOTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The beginning of the names of our instances; the number of the process follows.
const NAME: &str = "mmscale_";
/// Kilobytes of events kept for CPU 0, for CPU 1, of which switches are traced too, and for each
/// other CPU, of which only ticks are traced.
const BUFFER_KB: u32 = 131_072;
const BUFFER_OF_CPU_1_KB: u32 = 8_192;
const BUFFER_OF_OTHERS_KB: u32 = 1_024;

/// `cpu` would be an argument of some events.
const ON_CPU_0: &str = "CPU == 0";
const ON_CPU_1: &str = "CPU == 1";

/// A tracing instance; gone when this is dropped.
pub(super) struct Instance {
    path: String,
}

/// One tracepoint, or one call of a function, as one line of text says it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "Fields", into = "Fields")]
pub(super) struct Event {
    pub(super) pid: u32,
    /// Whether an interrupt or a softirq had interrupted the task.
    pub(super) in_interrupt: bool,
    /// When, in us since boot.
    pub(super) time_us: u64,
    pub(super) name: String,
    args: String,
}

fn wrong<E: std::fmt::Display>(what: String) -> impl Fn(E) -> CountsError {
    move |why| CountsError::Trace(format!("{what}: {why}"))
}

/// The fields of an event, in their order.
type Fields = (u32, bool, u64, String, String);

impl From<Fields> for Event {
    fn from((pid, in_interrupt, time_us, name, args): Fields) -> Self {
        Self { pid, in_interrupt, time_us, name, args }
    }
}

impl From<Event> for Fields {
    fn from(event: Event) -> Self {
        (event.pid, event.in_interrupt, event.time_us, event.name, event.args)
    }
}

/// The tracefs of the running kernel, and the addresses of functions that filters name.
pub(super) struct Tracefs {
    pub(super) root: &'static str,
    vmstat_update: u64,
    delayed_work_timer_fn: u64,
    lru_add_drain_per_cpu: u64,
}

impl Tracefs {
    /// Looks for it. An error says in a sentence what is missing.
    pub(super) fn look() -> Result<Self, CountsError> {
        // tidy: opened: a file of the kernel
        let open = |at: &&str| fs::read_dir(format!("{at}/events")).is_ok();
        let root = ROOTS.into_iter().find(open).ok_or_else(|| {
            needs(
                "tracefs cannot be read: run this as root, and mount it with `mount -t tracefs \
                 nodev /sys/kernel/tracing`",
            )
        })?;
        let symbols = read("/proc/kallsyms")?;
        Ok(Self {
            root,
            vmstat_update: address(&symbols, "vmstat_update")?,
            delayed_work_timer_fn: address(&symbols, "delayed_work_timer_fn")?,
            lru_add_drain_per_cpu: address(&symbols, "lru_add_drain_per_cpu")?,
        })
    }
}

fn address(symbols: &str, name: &str) -> Result<u64, CountsError> {
    let line = symbols.lines().find(|line| line.split(' ').nth(2) == Some(name));
    let address = line.and_then(|line| u64::from_str_radix(line.split(' ').next()?, 16).ok());
    address.filter(|&at| at != 0).ok_or_else(|| {
        needs(format!("/proc/kallsyms has no address of {name}: set kernel.kptr_restrict to 0"))
    })
}

impl Instance {
    pub(super) fn new(tracefs: &Tracefs) -> Result<Self, CountsError> {
        clear();
        let path = format!("{}/instances/{NAME}{}", tracefs.root, std::process::id());
        // tidy: opened: a file of tracefs
        fs::create_dir(&path).map_err(wrong(format!("making the tracing instance {path}")))?;
        let instance = Self { path };
        instance.write("buffer_size_kb", &BUFFER_OF_OTHERS_KB.to_string())?;
        instance.write("per_cpu/cpu0/buffer_size_kb", &BUFFER_KB.to_string())?;
        instance.write("per_cpu/cpu1/buffer_size_kb", &BUFFER_OF_CPU_1_KB.to_string())?;
        instance.write("trace_clock", "mono")?;
        Ok(instance)
    }
    fn write(&self, file: &str, text: &str) -> Result<(), CountsError> {
        let path = format!("{}/{file}", self.path);
        // tidy: opened: a file of tracefs
        fs::write(&path, text).map_err(wrong(format!("writing {text:?} to {path}")))
    }
    /// The file whose writers put marks into the trace.
    pub(super) fn marker(&self) -> String {
        format!("{}/trace_marker", self.path)
    }
    /// The file of the CPUs that are traced.
    pub(super) fn mask(&self) -> String {
        format!("{}/tracing_cpumask", self.path)
    }
    /// Starts to watch: `vmstat_update`, the arming of delayed work, the works that drain LRU
    /// batches, the tasks of CPU 1, and [`EVENTS`].
    pub(super) fn watch(&self, tracefs: &Tracefs, facts: &Facts) -> Result<(), CountsError> {
        let on = |event: &str, filter: &str| {
            self.write(&format!("events/{event}/filter"), filter)?;
            self.write(&format!("events/{event}/enable"), "1")
        };
        let function = |address: u64| format!("function == {address:#x}");
        let tick = function(tracefs.vmstat_update);
        on("workqueue/workqueue_execute_start", &tick)?;
        on("workqueue/workqueue_execute_end", &tick)?;
        on("workqueue/workqueue_queue_work", &function(tracefs.lru_add_drain_per_cpu))?;
        on("timer/timer_start", &function(tracefs.delayed_work_timer_fn))?;
        on("sched/sched_switch", ON_CPU_1)?;
        let interrupts = if facts.sees_interrupts { &INTERRUPTS[..] } else { &[] };
        EVENTS.iter().chain(interrupts).try_for_each(|event| on(event, ON_CPU_0))?;
        if facts.sees_drains {
            self.write("set_ftrace_filter", DRAIN)?;
            self.write("current_tracer", "function")?;
        }
        Ok(())
    }
    pub(super) fn stop(&self) -> Result<(), CountsError> {
        self.write("tracing_on", "0")
    }
    /// The events of a CPU, in order. An error if the buffer was too small for them.
    pub(super) fn events(&self, cpu: usize) -> Result<Vec<Event>, CountsError> {
        let stats = read(&format!("{}/per_cpu/cpu{cpu}/stats", self.path))?;
        if !stats.lines().any(|line| line.trim() == "overrun: 0") {
            return Err(CountsError::Lost(cpu));
        }
        let text = read(&format!("{}/per_cpu/cpu{cpu}/trace", self.path))?;
        Ok(parsed(&text))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // The kernel switches the instance's events and its tracer off itself. Nothing can be done
        // if it refuses.
        // tidy: opened: a file of tracefs
        let _ = fs::remove_dir(&self.path);
    }
}

/// Removes the tracing instances of processes that were killed.
pub(crate) fn clear() -> Leftovers {
    let mut found = Leftovers::default();
    let Some(root) = ROOTS.iter().find(|root| exists(&format!("{root}/instances"))) else {
        return found;
    };
    // tidy: opened: a file of tracefs
    let Ok(instances) = fs::read_dir(format!("{root}/instances")) else { return found };
    for instance in instances.flatten() {
        let name = instance.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(NAME));
        let own = |pid: &str| pid == std::process::id().to_string();
        if owner.is_none_or(|pid| !own(pid) && exists(&format!("/proc/{pid}"))) {
            continue;
        }
        let path = instance.path();
        // tidy: opened: a file of tracefs
        match fs::remove_dir(&path) {
            Ok(()) => found.done.push(format!("removed the tracing instance {}", path.display())),
            Err(why) => found.failed.push(format!("{}: {why}", path.display())),
        }
    }
    found
}

fn exists(path: &str) -> bool {
    Path::new(path).exists()
}

/// Parses the text of a trace.
pub(super) fn parsed(text: &str) -> Vec<Event> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(event_of).collect()
}

/// `name-pid [cpu] flags seconds: event: arguments`, or `... seconds: function <-caller`.
fn event_of(line: &str) -> Option<Event> {
    let (task, rest) = line.split_once(" [")?;
    let (_, rest) = rest.split_once("] ")?;
    let (head, rest) = rest.split_once(": ")?;
    let (name, args) = rest.split_once(": ").or_else(|| rest.split_once(" <-"))?;
    let (flags, time) = head.trim().split_once(' ')?;
    let (seconds, us) = time.trim().split_once('.')?;
    Some(Event {
        pid: task.trim().rsplit_once('-')?.1.parse().ok()?,
        // Interrupts off, need to reschedule, then what runs: `h` and `s` are interrupts.
        in_interrupt: flags.chars().nth(2).is_some_and(|what| what != '.'),
        time_us: seconds.parse::<u64>().ok()? * 1_000_000 + us.parse::<u64>().ok()?,
        name: name.to_owned(),
        args: args.to_owned(),
    })
}

impl Event {
    /// The text of a mark that the program has made; `None` for other events.
    pub(super) fn mark(&self) -> Option<&str> {
        (self.name == "tracing_mark_write").then(|| self.args.trim())
    }
    /// The argument `key=...` or `key:...`.
    pub(super) fn arg(&self, key: &str) -> Option<&str> {
        let words = self.args.split([' ', '[', ']', ';']);
        let pairs = words.filter_map(|word| word.split_once(['=', ':']));
        pairs.filter(|(name, _)| *name == key).map(|(_, value)| value).next()
    }
    pub(super) fn number(&self, key: &str) -> Option<i64> {
        let text = self.arg(key)?;
        match text.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        }
    }
    /// Removes the address of the kernel's own data about a page: it says nothing.
    pub(super) fn shortened(mut self) -> Self {
        if let Some(rest) = self.args.strip_prefix("page=") {
            self.args = rest.split_once(' ').map_or("", |(_, rest)| rest).to_owned();
        }
        self
    }
    /// All arguments, as the trace shows them.
    pub(super) fn args(&self) -> &str {
        &self.args
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_trace_become_events() {
        let text = "\
# tracer: nop
          job-359     [000] ...1. 18882.309733: tlb_flush: pages:10 reason:remote IPI send (4)
 kworker/0:1-7 [000] dNh2. 18882.309736: timer_start: timer=00000000ab function=x expires=4300 \
[timeout=250] bucket_expiry=4304 cpu=0
a line that is cut
          job-359     [000] ...1. 18882.309740: free_pcppages_bulk <-free_unref_page_commit
          job-359     [000] ...1. 18882.309765: tracing_mark_write: begin call 3
";
        let mut events = parsed(text);
        assert_eq!(events.len(), 4);
        let call = events.remove(2);
        assert_eq!((call.name.as_str(), call.args()), (DRAIN, "free_unref_page_commit"));
        assert_eq!((events[0].pid, events[0].time_us), (359, 18_882_309_733));
        assert_eq!(events[0].number("pages"), Some(10));
        assert_eq!(events.iter().map(|e| e.in_interrupt).collect::<Vec<_>>(), [false, true, false]);
        assert_eq!(events[1].number("timeout"), Some(250));
        assert_eq!(events[1].arg("timer"), Some("00000000ab"));
        assert_eq!(events[1].mark(), None);
        assert_eq!(events[2].mark(), Some("begin call 3"));
    }
}
