//! Host time of scripts next to the same programs in Rust, on the simulator.
//!
//! Each form runs a million operations or more, at 1 and at 96 CPUs, in turns; the figure is the
//! shortest of some runs, in host ns per operation (goal: a script takes at most twice as long). It
//! is the CPU time of this thread if the kernel shows that, so that other programs matter little.

use mmscale_arch::{CpuId, Probe, Trace, TraceGroup};
use mmscale_boot::{Boot, on_sim};
use mmscale_frames::page_alloc::MemoryMap;
use mmscale_kernel::{FinalCheck, Os};
use mmscale_mm::mm::MmConfig;
use mmscale_mm::vmstat_work::TickPolicy;
use mmscale_script::{Report, Script, Sink, Times};
use mmscale_sim::profile::load;
use mmscale_sim::{Checks, SimConfig};
use mmscale_system::{Addr, Errno, MapSpec, PAGE_BYTES, System, ThreadSpec};
use std::any::Any;
use std::fs;
use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Runs of each form.
const RUNS: usize = 5;
/// The common start of the programs, in ns.
const BEGIN_NS: u64 = 20_000_000;

/// Operations in Rust, each of which calls `counted`, with memory that was mapped before the start,
/// on this CPU.
type Operations = fn(&Os, mem: Addr, cpu: usize, counted: &mut dyn FnMut()) -> Result<(), Errno>;

/// A program in both forms.
struct Case {
    name: &'static str,
    /// Pages that are mapped and written before the start.
    pages: u64,
    operations: Operations,
    text: &'static str,
    /// Time of an operation at 1 and at 96 CPUs, in ns of the machine: so long a window has about a
    /// million operations.
    op_ns: [u64; 2],
}

const CASES: &[Case] = &[
    Case {
        name: "write to a page, compute",
        pages: 64,
        operations: |system, mem, _, counted| {
            for page in 0..64 {
                system.write(mem.page(page), page)?;
                system.compute_ns(1000)?;
                counted();
            }
            Ok(())
        },
        text: "process one per_cpu { mem = mmap(64 pages, POPULATE); write(mem); start;
            loop { for i in 0..pages(mem) { write(mem[i]); compute(1us); count; } } }",
        op_ns: [1000, 11],
    },
    Case {
        name: "page_fault1: fault of a page",
        pages: 0,
        operations: |system, _, _, counted| {
            let mem = system.mmap(MapSpec::new(1024 * PAGE_BYTES))?;
            for page in 0..1024 {
                system.write(mem.page(page), page)?;
                counted();
            }
            system.munmap(mem, 1024 * PAGE_BYTES)
        },
        text: "process one per_cpu { start;
            loop { mem = mmap(1024 pages); for i in 0..pages(mem) { write(mem[i]); count; }
                munmap(mem); } }",
        op_ns: [700, 70],
    },
    Case {
        name: "malloc1: mmap, write, munmap",
        pages: 0,
        operations: |system, _, _, counted| {
            let mem = system.mmap(MapSpec::new(32 * PAGE_BYTES))?;
            system.write(mem, 1)?;
            system.munmap(mem, 32 * PAGE_BYTES)?;
            counted();
            Ok(())
        },
        text: "process one per_cpu { start;
            loop { mem = mmap(32 pages); write(mem[0]); munmap(mem); count; } }",
        op_ns: [3000, 300],
    },
    Case {
        name: "tlb_flush2: write, drop, read",
        pages: 64,
        operations: |system, mem, _, counted| {
            for at in (0..64).map(|page| mem.page(page)) {
                system.write(at, 1)?;
                system.madvise(at, PAGE_BYTES, mmscale_system::Advice::DontNeed)?;
                black_box(system.read(at)?);
                counted();
            }
            Ok(())
        },
        text: "process one per_cpu { mem = mmap(64 pages, POPULATE); write(mem); start;
            loop { for i in 0..pages(mem) {
                write(mem[i]); madvise(mem[i], DONTNEED); read(mem[i]); count; } } }",
        op_ns: [3000, 300],
    },
    Case {
        name: "forkstorm: fork, write, wait",
        pages: 64,
        operations: |system, mem, cpu, counted| {
            let child = move |system: &Os| {
                let _ = (0..8).try_for_each(|page| system.write(mem.page(page), 0));
            };
            let child = system.fork(ThreadSpec::on(cpu), Box::new(child))?;
            system.wait(child)?;
            counted();
            Ok(())
        },
        text: "process one per_cpu { mem = mmap(64 pages, POPULATE); write(mem); start;
            loop { child = fork { write(mem[..8 pages]); } wait(child); count; } }",
        // A twentieth of a million: an operation is a process.
        op_ns: [2000, 250],
    },
];

/// Operations of a run, and its host time in ns.
#[derive(Clone, Copy)]
struct Took {
    ops: u64,
    host_ns: u64,
}

impl Took {
    fn per_op(self) -> f64 {
        self.host_ns as f64 / self.ops as f64
    }
}

/// Returns the CPU time of this thread in ns, or the time that passes.
fn host_ns(begun: Instant) -> u64 {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let cpu_ns = stat.split_whitespace().next().and_then(|ns| ns.parse().ok());
    cpu_ns.unwrap_or_else(|| begun.elapsed().as_nanos() as u64)
}

/// A probe that subscribes to no events, as in runs without checkers.
struct Deaf;

impl Probe for Deaf {
    fn event(&mut self, _: u64, _: &Trace) {}
    fn hears(&self, _: TraceGroup) -> bool {
        false
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Runs the first program of a machine, and returns the sum of what its programs report.
fn simulate(cpus: usize, program: impl FnOnce(&Os, Sink) + Send + 'static) -> Took {
    let (sum, begun) = (Arc::new(Mutex::new(Report::default())), Instant::now());
    let board = Arc::clone(&sum);
    let sink: Sink = Arc::new(move |report| *board.lock().expect("no panic") += report);
    let profile = load("x86-512").expect("it is built in");
    let pages = u32::try_from(profile.node_pages).expect("profiles are checked");
    let mm = MmConfig::new(MemoryMap::nodes(profile.topology.nodes, pages), TickPolicy::Stock);
    let mut config = SimConfig::new(profile, cpus);
    config.checks = Checks::Off;
    let program = Box::new(move |system: &Os| program(system, sink));
    let before_ns = host_ns(begun);
    let boot = Boot { mm, final_check: FinalCheck::Skip, program };
    let outcome = on_sim(config, &mut |_: CpuId| Box::new(Deaf), boot);
    assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
    let report = *sum.lock().expect("no panic");
    assert_eq!(report.fault, None, "the script has no error");
    Took { ops: report.ops_ever, host_ns: host_ns(begun) - before_ns }
}

/// A program of the Rust form.
fn program(case: &Case, times: Times, cpu: usize, system: &Os, sink: &Sink) -> Result<(), Errno> {
    let mut report = Report::default();
    let bytes = case.pages.max(1) * PAGE_BYTES;
    let mem = system.mmap(MapSpec::populated(bytes))?;
    (0..case.pages).try_for_each(|page| system.write(mem.page(page), page))?;
    system.sleep_ns(times.begin_ns.saturating_sub(system.clock_ns()))?;
    while system.clock_ns() < times.until_ns {
        (case.operations)(system, mem, cpu, &mut || {
            let now_ns = system.clock_ns();
            report.ops += u64::from((times.from_ns..times.until_ns).contains(&now_ns));
            report.ops_ever += 1;
        })?;
    }
    sink.report(report);
    Ok(())
}

fn in_rust(case: &'static Case, times: Times, cpus: usize) -> Took {
    simulate(cpus, move |system, sink| {
        let start = |cpu| {
            let sink = Arc::clone(&sink);
            let body = move |system: &Os| {
                program(case, times, cpu, system, &sink).expect("memory is enough");
            };
            system.process(ThreadSpec::on(cpu), Box::new(body)).expect("memory is enough")
        };
        let started: Vec<_> = (0..cpus).map(start).collect();
        for process in started {
            let _ = system.wait(process);
        }
    })
}

fn as_script(case: &Case, times: Times, cpus: usize) -> Took {
    let script = Script::parse(case.name, case.text).unwrap_or_else(|why| panic!("{why}"));
    simulate(cpus, move |system, sink| script.run(&[], 1, times, sink, system))
}

fn main() {
    // Cargo passes options of other benches.
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    println!("| operation | CPUs | operations | Rust, ns | script, ns | ratio |");
    println!("|---|---|---|---|---|---|");
    for case in CASES.iter().filter(|case| case.name.contains(&only)) {
        for (cpus, op_ns) in [1, 96].into_iter().zip(case.op_ns) {
            let until_ns = BEGIN_NS + op_ns * 1_000_000;
            let times = Times { begin_ns: BEGIN_NS, from_ns: BEGIN_NS, until_ns };
            let runs =
                (0..RUNS).map(|_| [in_rust(case, times, cpus), as_script(case, times, cpus)]);
            let runs: Vec<_> = runs.collect();
            let shortest = |form: usize| {
                runs.iter().map(|run| run[form].per_op()).min_by(f64::total_cmp).expect("runs")
            };
            let (rust, script) = (shortest(0), shortest(1));
            println!(
                "| {} | {cpus} | {} | {rust:.0} | {script:.0} | {:.2} |",
                case.name,
                runs[0][1].ops,
                script / rust
            );
        }
    }
}
