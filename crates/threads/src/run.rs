//! A run: threads are started, watched and joined.

use crate::arena::Arena;
use crate::config::{Failure, Outcome, ThreadsConfig, panic_message};
use crate::host::{HostCpus, Waiting, lock, punctual_sleeps};
use crate::paths;
use crate::sched::{leak_coroutines, main_loop};
use crate::state::{Machine, NEVER, enter, leave};
use crate::wake::Dying;
use mmscale_arch::{Callbacks, CpuId, MAX_CPUS, Probe};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The interval at which the watch checks for the limit, for an interrupt from outside and for a
/// deadlock.
const WATCH: Duration = Duration::from_millis(20);

/// Runs a machine. `boot` makes the callbacks, on CPU 0, with interrupts and preemption off, before
/// the other CPUs start; it spawns the first tasks. The run ends when the last task has returned.
/// Everything that the run started has ended when this returns.
pub fn run<K: Callbacks + Send + Sync + 'static>(
    config: &ThreadsConfig,
    probe: impl FnMut(CpuId) -> Box<dyn Probe>,
    boot: impl FnOnce() -> Arc<K> + Send,
) -> Outcome {
    let host = HostCpus::allowed();
    let waiting = if config.cpus <= host.count() { Waiting::Spin } else { Waiting::Yield };
    let arena = match check(config).and_then(|()| arena(config)) {
        Ok(arena) => arena,
        Err(failure) => return not_started(failure),
    };
    let mut machine = Machine::new(config, probe, waiting, arena);
    let pinned = AtomicBool::new(true);
    let mut wall_ns = 0;
    let started = std::thread::scope(|scope| -> Result<(), Failure> {
        let (machine, host, pinned) = (&machine, &host, &pinned);
        let thread = |cpu: CpuId| std::thread::Builder::new().name(cpu.to_string());
        let no_thread = |error: std::io::Error| Failure::System {
            what: "a thread for each CPU",
            reason: error.to_string(),
        };
        let first = CpuId::new(0);
        let (booted, boot_done) = std::sync::mpsc::channel();
        let body = move || {
            cpu_thread(machine, first, host, pinned, || {
                let callbacks = boot();
                let _ = machine.callbacks.set(callbacks);
                let _ = booted.send(machine.clock.now_ns());
                if machine.live.load(Ordering::Acquire) == 0 {
                    machine.finish();
                }
            });
        };
        thread(first).spawn_scoped(scope, body).map_err(no_thread)?;
        // An error means that the boot panicked; the failure is recorded.
        let Ok(start_ns) = boot_done.recv() else { return Ok(()) };
        for cpu in (1..config.cpus).map(CpuId::new) {
            let body = move || cpu_thread(machine, cpu, host, pinned, || ());
            if let Err(error) = thread(cpu).spawn_scoped(scope, body) {
                machine.fail(no_thread(error));
                break;
            }
        }
        watch(machine, config);
        wall_ns = machine.clock.now_ns() - start_ns;
        Ok(())
    });
    let failure = started.err().or_else(|| machine.take_failure());
    if failure.is_some() {
        leak_coroutines(&machine);
    }
    let stats: Vec<_> = machine.cpus.iter_mut().map(|cpu| &*cpu.local.stats.get_mut()).collect();
    let locks = paths::merge(&machine.paths, stats.iter().copied());
    let calls = paths::merge_calls(&machine.paths, stats.into_iter());
    let late = machine.cpus.iter().map(|cpu| cpu.local.timer_late_max_ns.get());
    Outcome {
        wall_ns,
        locks,
        calls,
        timer_late_max_ns: late.max().unwrap_or(0),
        probes: machine
            .cpus
            .iter_mut()
            .filter_map(|cpu| cpu.local.probe.get_mut().take())
            .collect(),
        own_host_cpus: waiting == Waiting::Spin,
        pinned: pinned.into_inner(),
        failure,
    }
}

fn check(config: &ThreadsConfig) -> Result<(), Failure> {
    let wrong = |what: String| Err(Failure::Config { what });
    if config.cpus == 0 || config.cpus > MAX_CPUS {
        return wrong(format!("{} CPUs: it has between 1 and {MAX_CPUS}", config.cpus));
    }
    if config.hz == 0 || config.hz > 10_000 {
        return wrong(format!("HZ = {}: it is between 1 and 10000", config.hz));
    }
    if config.memory_pages >= u64::from(u32::MAX) {
        return wrong(format!("{} pages: it has fewer than 2^32 - 1", config.memory_pages));
    }
    Ok(())
}

fn arena(config: &ThreadsConfig) -> Result<Arena, Failure> {
    Arena::new(config.memory_pages as usize).map_err(|error| Failure::System {
        what: "address space for its frames",
        reason: error.to_string(),
    })
}

fn not_started(failure: Failure) -> Outcome {
    Outcome {
        wall_ns: 0,
        locks: Vec::new(),
        calls: Vec::new(),
        probes: Vec::new(),
        timer_late_max_ns: 0,
        own_host_cpus: false,
        pinned: false,
        failure: Some(failure),
    }
}

/// Runs the thread of one CPU: `first`, then its scheduler, until the run has ended.
fn cpu_thread(
    machine: &Machine,
    cpu: CpuId,
    host: &HostCpus,
    pinned: &AtomicBool,
    first: impl FnOnce(),
) {
    pinned.fetch_and(host.pin(cpu.index()), Ordering::Relaxed);
    punctual_sleeps();
    // SAFETY: the scope joins this thread before the machine is dropped, and starts one thread for
    // each CPU.
    unsafe { enter(machine, cpu) };
    let result = catch_unwind(AssertUnwindSafe(|| {
        first();
        main_loop();
    }));
    if let Err(payload) = result
        && !payload.is::<Dying>()
    {
        let message = panic_message(&*payload);
        machine.fail(Failure::Panic { cpu, message });
    }
    leave();
}

/// Waits for the end of the run, and ends it if necessary.
fn watch(machine: &Machine, config: &ThreadsConfig) {
    let mut quiet = None;
    let start = Instant::now();
    while !machine.over.load(Ordering::Acquire) {
        std::thread::park_timeout(WATCH);
        let time_ns = start.elapsed().as_nanos() as u64;
        let tasks = machine.live.load(Ordering::Acquire);
        if config.interrupt.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            machine.fail(Failure::Interrupted { time_ns });
        } else if time_ns >= config.limit_ns {
            machine.fail(Failure::Limit { limit_ns: config.limit_ns, tasks });
        } else {
            let now = silence(machine);
            if now.is_some() && now == quiet && tasks > 0 {
                machine.fail(Failure::Deadlock { time_ns, tasks });
            }
            quiet = now;
        }
    }
}

/// Returns how often the CPUs have gone to sleep, if every CPU sleeps with no timer armed and
/// nothing to do. If the sum is the same some time later, nothing has happened and nothing will.
fn silence(machine: &Machine) -> Option<u64> {
    let sleeps = machine.cpus.iter().map(|cpu| {
        let idle = cpu.is_asleep()
            && cpu.deadline_ns.load(Ordering::Acquire) == NEVER
            && lock(&cpu.queue).len() == 0;
        idle.then(|| cpu.sleeps.load(Ordering::Acquire))
    });
    sleeps.sum()
}
