//! Flushes: a CPU that a flush has not reached sees what the flush is for.

use crate::tlb::{Flush, scenario};
use mmscale_interleave::check_weak;
use mmscale_mm::smp::CallPolicy;

/// A flush changes the table, then the generation, then looks at what CPUs have loaded; a CPU says
/// what it loads, then looks at the generation (`SeqCst` in `switch`, `begin`, `is_called` and
/// `is_behind`), then at the table.
#[test]
fn a_cpu_that_comes_to_use_an_address_space_sees_its_generation() {
    for policy in CallPolicy::ALL {
        check_weak(100, move || scenario(Flush::Each, policy));
    }
}

/// Deferred flushes: a batch, and frames in limbo.
#[test]
fn a_batch_or_limbo_covers_what_was_deferred() {
    check_weak(60, || scenario(Flush::Batch, CallPolicy::Stock));
    for flush in [Flush::Batch, Flush::Limbo, Flush::Begun] {
        check_weak(60, move || scenario(flush, CallPolicy::Requests));
    }
}
