//! Batches of LRU lists: what was added before a drain was called is listed after it.

use crate::drains::{Shared, add_between_drains, add_while_batches_go_off};
use mmscale_interleave::{check_weak, cpu_body, run};
use mmscale_mm::lru::LruPolicy;
use std::sync::Arc;

/// The fences in `drain_cpus`: a CPU that is content with a drain that another began asks no CPU by
/// itself, so that drain must have seen what this one has.
#[test]
fn a_drain_that_another_has_begun_covers_what_was_added_before() {
    check_weak(100, add_between_drains);
}

/// The count of those that do without batches, which the grace period carries to every CPU.
#[test]
fn an_add_after_batches_went_off_sees_that() {
    check_weak(100, add_while_batches_go_off);
}

/// A CPU that isolates a folio, from its list or from the slot that it waits in, sees what the CPU
/// that added it has written into it.
#[test]
fn a_folio_that_is_isolated_brings_its_content() {
    for policy in LruPolicy::ALL {
        check_weak(40, move || {
            run(2, || {
                let shared = Shared::new(policy);
                let (adder, taker) = (Arc::clone(&shared), Arc::clone(&shared));
                let bodies = vec![
                    cpu_body(move || {
                        adder.content.set(5);
                        adder.mm.memory().add(adder.pfn);
                        adder.mm.memory().drain();
                    }),
                    cpu_body(move || {
                        if taker.mm.memory().isolate(taker.pfn) {
                            assert_eq!(taker.content.get(), 5);
                            taker.mm.memory().putback(taker.pfn);
                        }
                    }),
                ];
                (shared.hooks(), bodies)
            });
        });
    }
}
