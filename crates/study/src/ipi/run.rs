//! One seed of one arm: the machine, the programs on it, and what they leave.

use super::figures::{self, Observed};
use super::probe::IpiProbe;
use super::workload::{self, Books, Plan, Work};
use crate::machine::{self, MachineSpec, Program};
use crate::policies::Arm;
use crate::shipped::set_machine;
use crate::study::{RunContext, SeedResult, StudyError};
use mmscale_arch::{Machine, Probe};
use mmscale_document::On;
use mmscale_kernel::Kernel;
use mmscale_mm::smp::CallStats;
use mmscale_mm::swap::{SwapConfig, Zeromap};
use mmscale_sim::{Disturbance, Lengths, Noise, Windows};
use mmscale_system::System;
use std::sync::{Arc, Mutex};

/// The window of the real measurements, for which the profile's noise stands.
const REAL_WINDOW_S: f64 = 30.0;
/// Until all threads are there: on simulated and on real machines, and for each thread.
const SETTLE_NS: u64 = 20_000_000;
const MAKING_SIM_NS: u64 = 20_000;
const MAKING_HOST_NS: u64 = 200_000;
/// Slots of the swap area: 256 MiB.
const SWAP_PAGES: u32 = 1 << 16;

/// The first thread: starts the service and those who watch, and waits for both.
struct Calls {
    plan: Plan,
    books: Books,
    counted: Counted,
}

/// What was counted about calls when the time that counts began, and when it ended.
#[derive(Clone, Debug, Default)]
struct Counted(Arc<Mutex<[CallStats; 2]>>);

impl Counted {
    fn note(&self, at: usize, stats: CallStats) {
        self.0.lock().expect("nobody panics while noting")[at] = stats;
    }
    fn read(&self) -> [CallStats; 2] {
        *self.0.lock().expect("all programs have ended")
    }
}

impl Program for Calls {
    fn run<A: Machine>(self, kernel: &Kernel<A>) {
        let (plan, books) = (self.plan, self.books.clone());
        let watch = move |system: &Kernel<A>| {
            _ = workload::watch(system, plan, &books, workload::watchman_on)
        };
        let processes = workload::start(kernel, plan, &self.books, watch);
        for (at, when_ns) in [plan.from_ns, plan.until_ns].into_iter().enumerate() {
            let _ = kernel.sleep_ns(when_ns.saturating_sub(kernel.clock_ns()));
            self.counted.note(at, kernel.mm().call_stats());
        }
        for process in processes {
            let _ = kernel.wait(process);
        }
    }
}

/// The windows of a run in its parameters: how long and how many.
fn windows_of(ctx: &RunContext, work: Work) -> (u64, usize) {
    let params = &ctx.params;
    match work {
        Work::Flush => ((params.real("flush_ms") * 1e6) as u64, 1),
        Work::Mixed | Work::Reclaim => {
            ((params.real("window_s") * 1e9) as u64, params.count("windows") as usize)
        }
    }
}

pub(super) fn plan_of(ctx: &RunContext, seed: u64) -> (Plan, Windows) {
    let params = &ctx.params;
    let work = match params.choice("workload") {
        "flush" => Work::Flush,
        "reclaim" => Work::Reclaim,
        _ => Work::Mixed,
    };
    let (window_ns, count) = windows_of(ctx, work);
    let making_ns = if ctx.on == On::Sim { MAKING_SIM_NS } else { MAKING_HOST_NS };
    let from_ns = SETTLE_NS + 2 * making_ns * ctx.cpus as u64;
    let plan = Plan {
        from_ns,
        until_ns: from_ns + window_ns * count as u64,
        op_gap_ns: params.count("op_gap_us") * 1000,
        wake_gap_ns: params.count("wake_gap_us") * 1000,
        work,
        copies: params.switch("copies"),
        seed,
    };
    (plan, Windows { from_ns, window_ns, count })
}

/// The profile's noise, as often in a window of this run as in a real one, and its stolen times
/// longer or shorter by `tail`.
fn noise_of(noise: Noise, window_ns: u64, tail: f64) -> Noise {
    let share = window_ns as f64 / (REAL_WINDOW_S * 1e9);
    let closer = |of: Disturbance| Disturbance {
        period_ns: ((of.period_ns as f64 * share).round() as u64).max(1),
        ..of
    };
    let longer = |of: Disturbance| {
        let scaled = |ns: u64| ((ns as f64 * tail).round() as u64).max(1);
        let lengths = match of.lengths {
            Lengths::Of(lengths) => Lengths::Of(lengths.map(scaled)),
            Lengths::Tail { least_ns, most_ns, doubles_1024 } => {
                Lengths::Tail { least_ns: scaled(least_ns), most_ns: scaled(most_ns), doubles_1024 }
            }
        };
        Disturbance { lengths, ..of }
    };
    Noise { stolen: noise.stolen.map(closer).map(longer), irq_off: noise.irq_off.map(closer) }
}

/// Runs one arm with one seed.
pub(super) fn run(ctx: &RunContext, arm: &Arm, seed: u64) -> Result<SeedResult, StudyError> {
    let (plan, windows) = plan_of(ctx, seed);
    let mut spec = MachineSpec::new(ctx, seed);
    spec.expect_end(ctx, plan.until_ns, 0.0..1.0);
    arm.configure(&mut spec.mm);
    spec.mm.swap = SwapConfig { pages: SWAP_PAGES, zeromap: Zeromap::Off, ..SwapConfig::default() };
    spec.simulated(|config| {
        set_machine(&ctx.params, config);
        if ctx.params.switch("noise") {
            let tail = ctx.params.real("tail");
            config.noise = noise_of(config.profile.noise, windows.window_ns, tail);
        }
        config.locks_ns = (plan.from_ns, plan.until_ns);
        config.sections = Some(windows);
    });
    let books = Books::default();
    let counted = Counted::default();
    let program = Calls { plan, books: books.clone(), counted: counted.clone() };
    let window = (plan.from_ns, plan.until_ns);
    let mut machine = machine::run(spec, |_| Box::new(IpiProbe::new(window)) as _, program)?;
    let own = |probe: Box<dyn Probe>| probe.into_any().downcast::<IpiProbe>();
    let probes = machine.probes.drain(..);
    let probes: Vec<IpiProbe> =
        probes.map(|probe| *own(probe).expect("made by this function")).collect();
    let tally = books.take();
    workload::check(tally.ops, tally.damaged)?;
    let mut result = SeedResult::default();
    let seen = Observed {
        cpus: ctx.cpus,
        window_ns: plan.until_ns - plan.from_ns,
        sections: &machine.sections,
        probes: &probes,
        tally: &tally,
        counted: counted.read(),
        calls: &machine.calls,
    };
    figures::measure(&seen, &mut result);
    figures::distributions(&seen, &mut result);
    result.sections = figures::longest(&machine.sections, seed);
    result.host_metrics.insert("host_ns_per_event".to_owned(), machine.cost.ns_per_event());
    result.locks = machine.locks;
    result.fingerprint = machine.fingerprint;
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_sim::Gaps;

    #[test]
    fn a_short_window_has_as_many_disturbances_as_a_real_one() {
        let lengths = Lengths::Tail { least_ns: 1_000, most_ns: 50_000, doubles_1024: 512 };
        let one = Disturbance { period_ns: 3_000_000, gaps: Gaps::Random, lengths };
        let noise = Noise { stolen: Some(one), irq_off: Some(one) };
        let scaled = noise_of(noise, 100_000_000, 1.3);
        assert_eq!(scaled.irq_off.unwrap(), Disturbance { period_ns: 10_000, ..one });
        let longer = Lengths::Tail { least_ns: 1_300, most_ns: 65_000, doubles_1024: 512 };
        assert_eq!(scaled.stolen.unwrap().lengths, longer);
        assert_eq!(noise_of(noise, 30_000_000_000, 1.0), noise);
    }
}
