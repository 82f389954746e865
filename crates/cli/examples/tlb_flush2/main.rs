//! The loop of will-it-scale's `tlb_flush2` with threads: each thread has 1 MiB of anonymous
//! memory, and writes, discards and reads one page after the other. Two flushes a page reach all
//! threads. Its README compares published figures with predictions.

use mmscale_harness::system::{Advice, MapSpec, PAGE_BYTES, System, ThreadSpec};
use mmscale_harness::{
    Env, Metric, Needs, Phases, Registry, Run, Source, Unit, Window, Workload, counted, metric,
    params, ready_ns, study_file, tally, value,
};
use std::process::ExitCode;

/// Pages of a thread.
const PAGES: u64 = 256;
/// The time before the window, in ns: every thread has touched all of its pages.
const WARM_NS: u64 = 5_000_000;

#[derive(Clone, Debug)]
struct TlbFlush2;

params! {
    struct Params {
        threads: count(Unit::One, 16, [1, 4096]),
            "number of threads of the process, on as many cores, and then on their second threads";
        duration_ms: real(Unit::Ms, 10.0, [0.1, 600_000.0]),
            "duration of the window in which loops are counted";
    }
}

tally! { struct Tally { loops, damaged } }

impl Workload for TlbFlush2 {
    const FILE: Source = study_file!("tlb_flush2");
    const METRICS: &'static [Metric<Self>] = &[
        metric("loops_per_s", "1/s", "pages written, discarded and read, of all threads", |seen| {
            value(seen.per_s(seen.tally.loops as f64))
        }),
        metric(
            "lock_wait_share",
            "1",
            "share of the CPU time of all CPUs spent on locks",
            |seen| {
                let waits_ns: u64 = seen.locks()?.all().iter().map(|row| row.wait_total_ns).sum();
                value(waits_ns as f64 / seen.cpu_time_ns())
            },
        ),
    ];
    type Params = Params;
    type Plan = Window;
    type Tally = Tally;
    type Inside = ();
    type Meter = ();

    fn plan(env: &Env<Self>) -> Result<Window, String> {
        if env.params.threads > env.cpus() as u64 {
            return Err(format!("threads is {}, and each needs a CPU", env.params.threads));
        }
        Ok(Window::new(ready_ns(env, env.params.threads), WARM_NS, env.params.duration_ms))
    }
    fn phases(window: &Window) -> Phases {
        window.phases()
    }
    fn needs(env: &Env<Self>, _: &Window) -> Needs {
        Needs { processes: env.params.threads, pages: env.params.threads * PAGES }
    }
    fn damaged_pages(tally: &Tally) -> u64 {
        tally.damaged
    }
    fn run<S: System>(run: &Run<Self>, system: &S) {
        let own = run.clone();
        let process = move |system: &S| {
            let cpus = system.cpus() as u64;
            let threads = (0..own.params.threads).filter_map(|nth| {
                let run = own.clone();
                // CPUs 2n and 2n + 1 are the threads of a core.
                let cpu = (2 * nth % cpus + 2 * nth / cpus) as usize;
                let body = move |system: &S| discard(&run, system);
                system.spawn(ThreadSpec::on(cpu), Box::new(body)).ok()
            });
            for thread in threads.collect::<Vec<_>>() {
                let _ = system.join(thread);
            }
        };
        if let Ok(process) = system.process(ThreadSpec::on(0), Box::new(process)) {
            let _ = system.wait(process);
        }
    }
}

/// A thread, until the end of the run.
fn discard<S: System>(run: &Run<TlbFlush2>, system: &S) {
    let window = run.plan;
    counted(run, |tally| {
        let memory = system.mmap(MapSpec::new(PAGES * PAGE_BYTES))?;
        window.begin(system)?;
        for page in (0..PAGES).cycle().map(|page| memory.page(page)) {
            system.write(page, 1)?;
            system.madvise(page, PAGE_BYTES, Advice::DontNeed)?;
            tally.damaged += u64::from(system.read(page)? != 0);
            let now_ns = system.clock_ns();
            tally.loops += u64::from(window.counts(now_ns));
            if now_ns >= window.until_ns {
                break;
            }
        }
        Ok(())
    });
}

fn main() -> ExitCode {
    mmscale_cli::main(Registry::default().with::<TlbFlush2>())
}
