//! Calls between the CPUs of a machine, and flushes under all policies, while CPUs go offline and
//! come back: no interrupt is lost, no caller returns early, no frame is reached by an old
//! translation.
//!
//! `MMSCALE_SWARM=100` runs a hundred times as many schedules.

use crate::common::{Script, config, fair, run_script, run_well};
use mmscale_arch::sync::PreemptGuard;
use mmscale_arch::{Atomic, Cpu, CpuId, Ipi, Machine as _, Priority, TaskSpec};
use mmscale_mm::smp::{Call, CallFunc, CallPolicy, CallStats, Here, Smp, SmpConfig, Wait};
use mmscale_sim::{Failure, Faults, Outcome, Policy, Rule, Sim, SimConfig, random_u64};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;

pub(crate) const POLICIES: [CallPolicy; CallPolicy::ALL.len()] = CallPolicy::ALL;

/// The planted bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Planted {
    Nothing,
    /// One of this many interrupts for calls is ignored.
    LostIpi(u32),
}

/// The schedules: `count`, times the number in the environment.
pub(crate) fn seeds(count: u64) -> std::ops::Range<u64> {
    let times = std::env::var("MMSCALE_SWARM").ok().and_then(|times| times.parse::<u64>().ok());
    0..count * times.unwrap_or(1)
}

/// Calls, each of which counts how often it ran.
struct World {
    smp: Smp<Sim>,
    /// How often each call ran, by its number.
    ran: RefCell<Vec<u32>>,
    /// Callers that have not finished.
    busy: <Sim as Cpu>::AtomicU32,
    planted: Planted,
    taken: Cell<u32>,
}

impl World {
    fn boot(script: &Rc<Script>, smp: SmpConfig, planted: Planted) -> Rc<Self> {
        let world = Rc::new(Self {
            smp: Smp::new(smp),
            ran: RefCell::default(),
            busy: Atomic::new(0),
            planted,
            taken: Cell::new(0),
        });
        let of = |f: fn(&Self)| {
            let world = Rc::clone(&world);
            Box::new(move || f(&world))
        };
        let hear = Rc::clone(&world);
        *script.on_ipi.borrow_mut() = Some(Box::new(move |reason| {
            assert_eq!(reason, Ipi::CallFunction);
            hear.taken.set(hear.taken.get() + 1);
            let taken = hear.taken.get();
            let loses = |every| taken.is_multiple_of(every);
            let lost = matches!(hear.planted, Planted::LostIpi(every) if loses(every));
            if !lost {
                hear.smp.interrupt(&|call| hear.run(call));
            }
        }));
        *script.on_idle_exit.borrow_mut() = Some(of(|world| world.smp.idle_exit()));
        let dying = Rc::clone(&world);
        *script.on_dying.borrow_mut() = Some(Box::new(move || dying.smp.cpu_dying()));
        world
    }
    fn run(&self, call: Call) {
        assert_eq!(call.func, CallFunc::FlushTlb);
        self.ran.borrow_mut()[call.info[0] as usize] += 1;
    }
    fn ran(&self, call: usize) -> u32 {
        self.ran.borrow()[call]
    }
    /// Makes a new call.
    fn call(&self) -> (usize, Call) {
        let mut ran = self.ran.borrow_mut();
        ran.push(0);
        (ran.len() - 1, Call { func: CallFunc::FlushTlb, info: [ran.len() as u64 - 1, 0] })
    }
    /// Makes one call of some kind to some CPUs. One that waits has run everywhere when it returns.
    /// Returns its number and how often it is to run.
    fn step(&self, cpus: usize) -> (usize, u32) {
        let (number, call) = self.call();
        let run = |call| self.run(call);
        let draw = |below: u64| random_u64() % below;
        let wait = [Wait::No, Wait::Spin, Wait::Sleep, Wait::Sleep][draw(4) as usize];
        let to = match draw(3) {
            0 => {
                let target = CpuId::new(draw(cpus as u64) as usize);
                let all = |_| true;
                let reached =
                    self.smp.call_function_many([target], all, call, Here::Run, wait, &run);
                reached.others + reached.here
            }
            1 => {
                let reached = self.smp.on_each_cpu(call, wait, &run);
                reached.others + reached.here
            }
            _ => {
                let chosen = draw(1 << cpus);
                let cond = |cpu: CpuId| chosen >> cpu.index() & 1 != 0;
                let _held = (wait == Wait::Spin).then(PreemptGuard::<Sim>::new);
                let all = (0..cpus).map(CpuId::new);
                let reached = self.smp.call_function_many(all, cond, call, Here::Run, wait, &run);
                reached.others + reached.here
            }
        };
        if wait != Wait::No {
            assert_eq!(
                self.ran(number),
                to,
                "call {number} ({wait:?}) returns early, or ran twice"
            );
        }
        (number, to)
    }
}

#[derive(Clone, Copy)]
struct Setting {
    smp: SmpConfig,
    cpus: usize,
    steps: u32,
    planted: Planted,
    come_and_go: bool,
}

/// Every CPU calls others, at the same time, while some go offline and come back.
fn swarm(config: SimConfig, setting: Setting) -> (Outcome, CallStats) {
    let stats = Rc::new(Cell::new(CallStats::default()));
    let out = Rc::clone(&stats);
    let outcome = run_script(config, move |script| {
        let Setting { smp, cpus, steps, planted, come_and_go } = setting;
        let world = World::boot(script, smp, planted);
        for cpu in 0..cpus {
            let (world, out) = (Rc::clone(&world), Rc::clone(&out));
            let priority = if cpu % 3 == 2 { Priority::RealTime(5) } else { Priority::Fair };
            script.spawn_as(TaskSpec { priority, ..fair(cpu) }, move || {
                world.busy.fetch_add(1, SeqCst);
                let mut left = Vec::new();
                for _ in 0..steps {
                    left.push(world.step(cpus));
                    Sim::user(random_u64() % 3_000);
                }
                world.busy.fetch_sub(1, SeqCst);
                // Calls without a waiter have run in the end, too.
                Sim::user(2_000_000);
                left.into_iter().for_each(|(call, times)| assert_eq!(world.ran(call), times));
                out.set(world.smp.stats());
            });
        }
        let tenant = Rc::clone(&world);
        // On a CPU of its own: it never waits for long, and would keep other tasks off their CPUs.
        script.spawn(cpus, move || {
            Sim::user(1_000);
            let mut turn = 0;
            while come_and_go && tenant.busy.load(SeqCst) > 0 {
                let cpu = CpuId::new(1 + turn % (cpus - 1));
                assert_eq!(Sim::cpu_offline(cpu), Ok(()));
                let (call, _) = (tenant.call().0, ());
                assert_eq!(tenant.ran(call), 0);
                Sim::user(random_u64() % 40_000);
                assert_eq!(Sim::cpu_online(cpu), Ok(()));
                tenant.smp.cpu_online(cpu);
                turn += 1;
            }
        });
    });
    (outcome, stats.get())
}

fn plain(policy: CallPolicy) -> Setting {
    Setting {
        smp: SmpConfig { policy, timeout_ns: 50_000_000, ..SmpConfig::default() },
        cpus: 6,
        steps: 12,
        planted: Planted::Nothing,
        come_and_go: true,
    }
}

/// A machine whose interrupts and parks are disturbed.
fn machine(seed: u64, cpus: usize) -> SimConfig {
    let faults = Faults {
        late_ipi_1024: 100,
        late_ipi_ns: 20_000,
        early_park_1024: 50,
        ..Faults::default()
    };
    SimConfig { seed, faults, ..config(cpus) }
}

#[test]
fn no_call_is_lost_and_no_caller_returns_early_while_cpus_come_and_go() {
    let mut elided = 0;
    for policy in POLICIES {
        for seed in seeds(40) {
            let (outcome, stats) = swarm(machine(seed, 7), plain(policy));
            assert_eq!((outcome.failure, outcome.violations), (None, vec![]), "{policy:?} {seed}");
            elided += stats.ipis_elided;
        }
    }
    assert!(elided > 1000, "{elided} interrupts were not needed");
}

#[test]
fn a_lost_interrupt_is_named_with_its_cpu_and_its_call() {
    for policy in POLICIES {
        let planted = Planted::LostIpi(9);
        let smp = SmpConfig { policy, timeout_ns: 5_000_000, ..SmpConfig::default() };
        let setting = Setting { planted, smp, come_and_go: false, ..plain(policy) };
        let (outcome, _) = swarm(machine(1, 7), setting);
        let Some(Failure::Panic { message, .. }) = outcome.failure else {
            panic!("{policy:?}: it goes unseen: {:?}", outcome.failure)
        };
        assert!(message.contains("has not answered the call `flush_tlb_func` of cpu"), "{message}");
    }
}

#[test]
fn a_cpu_that_stops_without_closing_its_queue_is_seen() {
    let mut seen = 0;
    for seed in 0..40 {
        let outcome = run_script(machine(seed, 4), |script| {
            let smp = SmpConfig {
                policy: CallPolicy::Stock,
                timeout_ns: 1_000_000,
                ..SmpConfig::default()
            };
            let world = World::boot(script, smp, Planted::Nothing);
            // The bug: it stops with calls in its queue.
            *script.on_dying.borrow_mut() = Some(Box::new(|| true));
            for cpu in 1..3 {
                let world = Rc::clone(&world);
                script.spawn(cpu, move || {
                    for _ in 0..60 {
                        let run = |call| world.run(call);
                        let target = [CpuId::new(3)];
                        let (call, here) = (world.call().1, Here::Run);
                        world.smp.call_function_many(
                            target,
                            |_| true,
                            call,
                            here,
                            Wait::Spin,
                            &run,
                        );
                    }
                });
            }
            script.spawn(0, || {
                Sim::user(5_000 + random_u64() % 20_000);
                assert_eq!(Sim::cpu_offline(CpuId::new(3)), Ok(()));
            });
        });
        let offline = outcome.violations.iter().any(|found| found.rule == Rule::OfflineIpi);
        seen += u32::from(offline || outcome.failure.is_some());
    }
    assert!(seen > 0, "no checker sees it");
}

#[test]
fn calls_are_the_same_under_both_engine_policies() {
    for policy in POLICIES {
        for seed in 0..3 {
            let run = |engine| {
                let config = SimConfig { policy: engine, ..machine(seed, 7) };
                let (outcome, stats) = swarm(config, plain(policy));
                assert_eq!((outcome.failure, outcome.violations), (None, vec![]));
                (outcome.fingerprint, outcome.virtual_ns, stats)
            };
            assert_eq!(run(Policy::Lazy), run(Policy::Naive), "{policy:?} {seed}");
        }
    }
}

/// Returns when a task of the highest priority runs, which wakes on CPU 0 while that waits for CPU
/// 1; and when CPU 1 answers. In ns.
fn urgent_ns(policy: CallPolicy, wait: Wait) -> (u64, u64) {
    let (woken, answered) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (at, end) = (Rc::clone(&woken), Rc::clone(&answered));
    run_well(config(3), move |script| {
        let smp = SmpConfig { policy, ..SmpConfig::default() };
        let world = World::boot(script, smp, Planted::Nothing);
        script.spawn(1, || {
            let _off = mmscale_arch::sync::IrqGuard::<Sim>::new();
            Sim::user(900_000);
        });
        let urgent = TaskSpec { priority: Priority::RealTime(50), ..fair(0) };
        let urgent = script.spawn_as(urgent, move || {
            Sim::park();
            at.set(Sim::now_ns());
        });
        script.spawn(2, move || {
            Sim::user(200_000);
            Sim::unpark(urgent);
        });
        script.spawn(0, move || {
            Sim::user(50_000);
            let (call, run) = (world.call().1, |call| world.run(call));
            let targets = [CpuId::new(1)];
            world.smp.call_function_many(targets, |_| true, call, Here::Run, wait, &run);
            end.set(Sim::now_ns());
        });
    });
    (woken.get(), answered.get())
}

#[test]
fn a_more_urgent_task_waits_for_the_slowest_target_with_stock_and_not_with_the_others() {
    let (woken, answered) = urgent_ns(CallPolicy::Stock, Wait::Sleep);
    assert!(woken > 900_000 && answered > 900_000, "{woken} {answered}");
    for (policy, wait) in [
        (CallPolicy::Posted, Wait::Spin),
        (CallPolicy::Requests, Wait::Spin),
        (CallPolicy::Requests, Wait::Sleep),
    ] {
        let (woken, answered) = urgent_ns(policy, wait);
        assert!(woken < 230_000 && answered > 900_000, "{policy:?}: {woken} {answered}");
    }
}

/// Returns how long the first of two callers waits, in ns, while the second repeatedly calls the
/// same target from the same CPU.
fn reuse_ns(policy: CallPolicy) -> u64 {
    let took = Rc::new(Cell::new(0));
    let out = Rc::clone(&took);
    run_well(config(3), move |script| {
        let smp = SmpConfig { policy, ..SmpConfig::default() };
        let world = World::boot(script, smp, Planted::Nothing);
        let call = |world: &World, wait| {
            let (call, run) = (world.call().1, |call| world.run(call));
            let targets = [CpuId::new(1)];
            world.smp.call_function_many(targets, |_| true, call, Here::Run, wait, &run);
        };
        // The target always answers late.
        script.spawn(1, || {
            for _ in 0..40 {
                let _off = mmscale_arch::sync::IrqGuard::<Sim>::new();
                Sim::user(50_000);
            }
        });
        let steady = Rc::clone(&world);
        let urgent = TaskSpec { priority: Priority::RealTime(50), ..fair(0) };
        let urgent = script.spawn_as(urgent, move || {
            for _ in 0..20 {
                Sim::park();
                call(&steady, Wait::No);
            }
        });
        script.spawn(2, move || {
            for _ in 0..200 {
                Sim::user(20_000);
                Sim::unpark(urgent);
            }
        });
        script.spawn(0, move || {
            let from_ns = Sim::now_ns();
            call(&world, Wait::Spin);
            out.set(Sim::now_ns() - from_ns);
        });
    });
    took.get()
}

#[test]
fn a_waiter_of_requests_waits_for_its_own_call_alone() {
    let (posted, requests) = (reuse_ns(CallPolicy::Posted), reuse_ns(CallPolicy::Requests));
    assert!(requests < 120_000 && posted > 5 * requests, "{posted} {requests}");
}
