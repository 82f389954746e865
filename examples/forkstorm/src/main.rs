//! A study in a separate crate: on every CPU a process forks repeatedly, and each child writes to
//! some of the copied pages. Which lock is the bottleneck?

use mmscale::{Build, main_of};
use mmscale_harness::system::{Errno, MapSpec, PAGE_BYTES, System, ThreadSpec};
use mmscale_harness::{
    Env, Metric, Needs, Phases, Registry, Run, Source, Unit, Window, Workload, counted, metric,
    params, ready_ns, start_on, study_file, tally, value, wait_for,
};
use std::process::ExitCode;

#[derive(Clone, Debug)]
struct Forkstorm;

params! {
    struct Params {
        pages: count(Unit::Pages, 64, [1, 1 << 16]), "number of pages of each parent";
        writes: count(Unit::Pages, 8, [0, 1 << 16]),
            "number of pages that each child writes to, limited by `pages`";
        duration_ms: real(Unit::Ms, 20.0, [0.1, 600_000.0]),
            "duration of the window in which forks are counted";
    }
}

tally! { struct Tally { forks, failures, damaged } }

impl Workload for Forkstorm {
    const FILE: Source = study_file!("forkstorm");
    const METRICS: &'static [Metric<Self>] = &[
        metric("forks_per_s", "1/s", "forks per second of all CPUs", |seen| {
            value(seen.per_s(seen.tally.forks as f64))
        }),
        metric(
            "lock_wait_share",
            "1",
            "share of the CPU time of all CPUs spent waiting for spin locks",
            |seen| value(seen.locks()?.spun_ns(None) / seen.cpu_time_ns()),
        ),
        metric("fork_failures", "1", "number of parents that failed for lack of memory", |seen| {
            value(seen.tally.failures)
        }),
    ];
    type Params = Params;
    type Plan = Window;
    type Tally = Tally;
    type Inside = ();
    type Meter = ();

    fn plan(env: &Env<Self>) -> Result<Window, String> {
        Ok(Window::new(ready_ns(env, env.cpus() as u64), 0, env.params.duration_ms))
    }
    fn phases(window: &Window) -> Phases {
        window.phases()
    }
    fn needs(env: &Env<Self>, _: &Window) -> Needs {
        let processes = 2 * env.cpus() as u64;
        Needs { processes, pages: processes * env.params.pages }
    }
    fn damaged_pages(tally: &Tally) -> u64 {
        tally.damaged
    }
    fn run<S: System>(run: &Run<Self>, system: &S) {
        wait_for(system, start_on(run, system, 0..system.cpus(), storm));
    }
}

/// A parent, which forks until the end of the run.
fn storm<S: System>(run: &Run<Forkstorm>, system: &S, cpu: usize) {
    let (pages, window) = (run.params.pages, run.plan);
    let writes = run.params.writes.min(pages);
    counted(run, |tally| {
        let memory = system.mmap(MapSpec::populated(pages * PAGE_BYTES))?;
        (0..pages).try_for_each(|page| system.write(memory.page(page), page + 1))?;
        window.begin(system)?;
        while system.clock_ns() < window.until_ns {
            let child = move |system: &S| {
                let _ = (0..writes).try_for_each(|page| system.write(memory.page(page), 0));
            };
            let child = system.fork(ThreadSpec::on(cpu), Box::new(child));
            tally.failures += u64::from(child == Err(Errno::Nomem));
            system.wait(child?)?;
            tally.forks += u64::from(window.counts(system.clock_ns()));
        }
        for page in 0..pages {
            tally.damaged += u64::from(system.read(memory.page(page))? != page + 1);
        }
        Ok(())
    });
}

fn main() -> ExitCode {
    let build = Build::new("forkstorm", env!("CARGO_PKG_VERSION"), env!("FORKSTORM_SOURCES"));
    main_of(Registry::default().with::<Forkstorm>(), build)
}
