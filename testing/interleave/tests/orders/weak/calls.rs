//! Calls between CPUs: the target sees what the caller wrote before the call, and the caller what
//! the target did in it.

use mmscale_arch::{CpuId, Ipi};
use mmscale_interleave::{Hooks, Model, Plain, check_weak, cpu_body, run};
use mmscale_mm::smp::{Call, CallFunc, CallPolicy, Here, Smp, SmpConfig, Wait};
use std::sync::Arc;

/// The CPU that is called.
const TARGET: CpuId = CpuId::new(2);

struct Shared {
    smp: Smp<Model>,
    /// The argument of each caller, and its result.
    asked: [Plain; 2],
    answers: [Plain; 2],
}

impl Hooks for Shared {
    fn ipi(&self, _: Ipi) {
        self.smp.interrupt(&|call| self.run(call));
    }
}

impl Shared {
    fn run(&self, call: Call) {
        let number = call.info[0] as usize;
        self.answers[number].set(self.asked[number].get() + 1);
    }
}

/// `AcqRel` of the queue's `push` and `take` (of the word with `requests`), and the `Release` by
/// which a record or a request is done with the `Acquire` of its caller.
#[test]
fn a_call_carries_what_was_written_both_ways() {
    for policy in CallPolicy::ALL {
        for wait in [Wait::Spin, Wait::Sleep] {
            check_weak(150, move || {
                run(3, || {
                    let shared = Arc::new(Shared {
                        smp: Smp::new(SmpConfig {
                            policy,
                            timeout_ns: u64::MAX,
                            ..SmpConfig::default()
                        }),
                        asked: [Plain::new(0), Plain::new(0)],
                        answers: [Plain::new(0), Plain::new(0)],
                    });
                    let caller = |number: usize| {
                        let shared = Arc::clone(&shared);
                        cpu_body(move || {
                            for turn in [5, 9] {
                                shared.asked[number].set(turn);
                                let info = [number as u64, 0];
                                let call = Call { func: CallFunc::FlushTlb, info };
                                let run = |call| shared.run(call);
                                let (all, here) = (|_| true, Here::Skip);
                                shared.smp.call_function_many(
                                    [TARGET],
                                    all,
                                    call,
                                    here,
                                    wait,
                                    &run,
                                );
                                assert_eq!(shared.answers[number].get(), turn + 1);
                            }
                        })
                    };
                    let bodies = vec![caller(0), caller(1), cpu_body(|| {})];
                    (Some(shared.clone() as Arc<dyn Hooks>), bodies)
                });
            });
        }
    }
}
