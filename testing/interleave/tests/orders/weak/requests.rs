//! Requests whose slots run out.

use crate::requests::scenario;
use mmscale_interleave::check_weak;
use mmscale_mm::smp::Wait;

/// A task says that it waits and looks for a free slot; a CPU frees a slot and looks for tasks that
/// wait: `SeqCst` in `slot`, `try_slot` and `give_slot`.
#[test]
fn a_task_that_sleeps_for_the_last_slot_is_woken() {
    check_weak(300, || scenario(1, true, [&[(0, Wait::Sleep)], &[(1, Wait::Sleep)]]));
}
