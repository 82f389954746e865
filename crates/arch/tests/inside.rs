//! [`Inside::enter`] sets the current value for the duration of a call, and clears it afterwards,
//! also if the call panics.

use mmscale_arch::sync::Inside;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

#[test]
fn a_task_that_panics_is_in_nothing_afterwards() {
    let (inside, value) = (Inside::nothing(), Arc::new(7));
    // SAFETY: one task, and the reference ends in the statement.
    let now = || unsafe { inside.get().copied() };
    assert_eq!(inside.enter(&value, now), Some(7));
    assert_eq!(now(), None);
    let panics = AssertUnwindSafe(|| inside.enter(&value, || panic!("in the middle")));
    assert!(catch_unwind(panics).is_err());
    drop(value);
    assert_eq!(now(), None, "what it was in is freed");
}
