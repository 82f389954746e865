//! Requests whose slots run out: the last free slot passes between callers that wait, and callers
//! that do not.

use mmscale_arch::{Atomic, Cpu, CpuId, Ipi};
use mmscale_interleave::{CpuBody, Hooks, Model, check, cpu_body, run};
use mmscale_mm::smp::{Call, CallFunc, CallPolicy, Here, Smp, SmpConfig, Wait};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// The CPU that the callers call.
const TARGET: CpuId = CpuId::new(2);
/// A CPU that answers no call: calls to it keep their slots.
const DEAF: CpuId = CpuId::new(3);
/// Slots of a machine.
const SLOTS: usize = 62;
const CALLS: usize = 4;

struct World {
    smp: Smp<Model>,
    /// How often each call ran.
    ran: [<Model as Cpu>::AtomicU32; CALLS],
    /// Bodies that have ended.
    ended: <Model as Cpu>::AtomicU32,
}

impl Hooks for World {
    fn ipi(&self, reason: Ipi) {
        assert_eq!(reason, Ipi::CallFunction);
        if Model::cpu() != DEAF {
            self.smp.interrupt(&|call| self.run(call));
        }
    }
}

impl World {
    /// Takes all slots but `left` for good.
    fn new(left: usize) -> Self {
        let config = SmpConfig {
            policy: CallPolicy::Requests,
            timeout_ns: u64::MAX,
            ..SmpConfig::default()
        };
        let world = Self {
            smp: Smp::new(config),
            ran: core::array::from_fn(|_| Atomic::new(0)),
            ended: Atomic::new(0),
        };
        (left..SLOTS).for_each(|_| world.call_to(DEAF, 0, Wait::No));
        world
    }
    fn run(&self, call: Call) {
        self.ran[call.info[0] as usize].fetch_add(1, SeqCst);
    }
    fn call_to(&self, target: CpuId, number: usize, wait: Wait) {
        let call = Call { func: CallFunc::FlushTlb, info: [number as u64, 0] };
        let run = |call| self.run(call);
        self.smp.call_function_many([target], |_| true, call, Here::Skip, wait, &run);
    }
    fn call(&self, number: usize, wait: Wait) {
        self.call_to(TARGET, number, wait);
        let ran = self.ran[number].load(SeqCst);
        assert!(ran == 1 || ran == 0 && wait == Wait::No, "call {number} ran {ran} times");
    }
    /// The last body checks that each call ran once.
    fn end(&self, calls: usize) {
        if self.ended.fetch_add(1, SeqCst) == 1 {
            // After a call that is waited for, all calls before it have run.
            self.call(CALLS - 1, Wait::Spin);
            (0..calls).for_each(|number| {
                assert_eq!(self.ran[number].load(SeqCst), 1, "call {number}");
            });
        }
    }
}

/// CPUs 0 and 1 make these calls, with `left` slots for them. `late`: CPU 1 begins after the first
/// call has run.
pub(super) fn scenario(left: usize, late: bool, calls: [&'static [(usize, Wait)]; 2]) {
    let made = calls.iter().map(|calls| calls.len()).sum();
    run(4, || {
        let world = Arc::new(World::new(left));
        let caller = |calls: &'static [(usize, Wait)], late: bool| -> CpuBody {
            let world = Arc::clone(&world);
            cpu_body(move || {
                while late && world.ran[0].load(SeqCst) == 0 {
                    Model::relax();
                }
                calls.iter().for_each(|&(number, wait)| world.call(number, wait));
                world.end(made);
            })
        };
        let bodies =
            vec![caller(calls[0], false), caller(calls[1], late), cpu_body(|| {}), cpu_body(|| {})];
        (Some(world.clone() as Arc<dyn Hooks>), bodies)
    });
}

#[test]
fn a_task_that_sleeps_for_the_last_slot_is_woken() {
    check(900, || scenario(1, true, [&[(0, Wait::Sleep)], &[(1, Wait::Sleep)]]));
}

#[test]
fn a_slot_that_goes_to_a_call_that_nobody_waits_for_is_freed_once() {
    check(600, || scenario(1, false, [&[(0, Wait::Spin)], &[(1, Wait::No), (2, Wait::Spin)]]));
    check(600, || scenario(2, false, [&[(0, Wait::Spin), (1, Wait::No)], &[(2, Wait::Spin)]]));
}
