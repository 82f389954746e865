//! Calls between CPUs: queued, taken, waited for, and refused by a CPU that stops.

use mmscale_arch::{Atomic, Cpu, CpuId, Ipi, Machine as _, TaskId};
use mmscale_interleave::{Hooks, Model, check, cpu_body, interrupt, run};
use mmscale_mm::smp::{Call, CallFunc, CallPolicy, Here, Reached, Smp, SmpConfig, Wait};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

const POLICIES: [CallPolicy; CallPolicy::ALL.len()] = CallPolicy::ALL;
/// The CPU that the others call.
const TARGET: CpuId = CpuId::new(2);

/// The planted bug.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Planted {
    Nothing,
    /// Calls count as done before they have run.
    EarlyCompletion,
    /// The target stops without checking its queue.
    UnclosedQueue,
}

struct World {
    smp: Smp<Model>,
    /// How often each call ran.
    ran: [<Model as Cpu>::AtomicU32; 4],
    /// Whether each call was waited for to its end.
    over: [<Model as Cpu>::AtomicU32; 4],
    /// The target has stopped.
    stopped: <Model as Cpu>::AtomicU32,
    planted: Planted,
}

impl Hooks for World {
    fn ipi(&self, reason: Ipi) {
        assert_eq!(reason, Ipi::CallFunction);
        assert!(self.stopped.load(SeqCst) == 0, "an interrupt reaches a CPU that has stopped");
        if self.planted == Planted::EarlyCompletion {
            self.smp.interrupt(&|_| ());
        } else {
            self.smp.interrupt(&|call| self.run(call));
        }
    }
}

impl World {
    fn new(policy: CallPolicy, planted: Planted) -> Self {
        Self {
            smp: Smp::new(SmpConfig { policy, timeout_ns: u64::MAX, ..SmpConfig::default() }),
            ran: core::array::from_fn(|_| Atomic::new(0)),
            over: core::array::from_fn(|_| Atomic::new(0)),
            stopped: Atomic::new(0),
            planted,
        }
    }
    fn run(&self, call: Call) {
        let number = call.info[0] as usize;
        assert_eq!(self.over[number].load(SeqCst), 0, "call {number} runs after its end");
        self.ran[number].fetch_add(1, SeqCst);
    }
    fn call(&self, number: usize, wait: Wait) -> Reached {
        let call = Call { func: CallFunc::FlushTlb, info: [number as u64, 0] };
        let run = |call| self.run(call);
        let reached = self.smp.call_function_many([TARGET], |_| true, call, Here::Skip, wait, &run);
        if wait != Wait::No {
            self.over[number].store(1, SeqCst);
            assert_eq!(self.ran[number].load(SeqCst), reached.others, "call {number} is over");
        }
        reached
    }
    /// Stops the target for good, when it may stop.
    fn stop(&self) {
        let may = || self.planted == Planted::UnclosedQueue || self.smp.cpu_dying();
        while interrupt(|| {
            let stops = may();
            if stops {
                self.stopped.store(1, SeqCst);
            }
            !stops
        }) {
            Model::relax();
        }
    }
}

/// Two CPUs call a third, which stops for good if `stops`.
pub(crate) fn scenario(policy: CallPolicy, wait: Wait, planted: Planted, stops: bool) {
    run(3, || {
        let world = Arc::new(World::new(policy, planted));
        let caller = |cpu: usize| {
            let world = Arc::clone(&world);
            cpu_body(move || {
                // The record is used again immediately.
                let first = world.call(cpu, if cpu == 0 { Wait::No } else { wait });
                let second = world.call(2 + cpu, wait);
                assert!(stops || (first.others, second.others) == (1, 1));
                assert!(second.others == 0 || first.others == 1, "it has stopped, and is back");
            })
        };
        let target = Arc::clone(&world);
        let target = cpu_body(move || {
            if stops {
                target.stop();
            }
        });
        let bodies = vec![caller(0), caller(1), target];
        (Some(world.clone() as Arc<dyn Hooks>), bodies)
    });
}

#[test]
fn every_call_runs_once_before_its_caller_goes_on() {
    for policy in POLICIES {
        for wait in [Wait::Spin, Wait::Sleep] {
            check(700, move || scenario(policy, wait, Planted::Nothing, false));
        }
    }
}

#[test]
fn a_cpu_that_stops_has_run_what_was_queued_and_gets_no_interrupt_afterwards() {
    for policy in POLICIES {
        check(1000, move || scenario(policy, Wait::Spin, Planted::Nothing, true));
    }
}

/// A CPU whose task is parked, and what arrived there.
struct Parked {
    interrupts: <Model as Cpu>::AtomicU32,
    told: <Model as Cpu>::AtomicU32,
}

impl Hooks for Parked {
    fn ipi(&self, _: Ipi) {
        self.interrupts.fetch_add(1, SeqCst);
        Model::unpark(TaskId::new(0));
    }
}

/// CPU 0 sleeps until the interrupt is answered, and then wakes the task: the CPU must take it
/// while the task is parked, and the task must not return from that.
#[test]
fn a_cpu_whose_task_is_parked_takes_interrupts() {
    check(100, || {
        let parked = Arc::new(Parked { interrupts: Atomic::new(0), told: Atomic::new(0) });
        let (wakes, sleeps) = (Arc::clone(&parked), Arc::clone(&parked));
        run(2, || {
            let wakes = cpu_body(move || {
                Model::ipi_send(CpuId::new(1), Ipi::CallFunction);
                while wakes.interrupts.load(SeqCst) == 0 {
                    Model::park();
                }
                wakes.told.store(1, SeqCst);
                Model::unpark(TaskId::new(1));
            });
            let sleeps = cpu_body(move || {
                Model::park();
                assert_eq!(sleeps.told.load(SeqCst), 1, "an interrupt woke the task");
            });
            (Some(parked.clone() as Arc<dyn Hooks>), vec![wakes, sleeps])
        });
    });
}
