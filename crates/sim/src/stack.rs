//! Stacks of coroutines: pooled on each host thread, with coloured tops.

use crate::slab::{GUARD_BYTES, Guards, SLAB_STACKS, STACK_BYTES, Slab};
use corosensei::stack::{STACK_ALIGNMENT, Stack, StackPointer};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;

/// Colours of stack tops, one host cache line apart. Together they span 2 KiB, so that the hot ends
/// of stacks, all of which begin at a page's end, do not share a few sets of the host's caches.
const COLOURS: usize = 32;
/// Bytes of a host cache line.
const LINE_BYTES: usize = 64;

const _: () = assert!(LINE_BYTES.is_multiple_of(STACK_ALIGNMENT));

thread_local! {
    /// Unused stacks: a page that was touched costs the host about 1 us to make.
    static POOL: RefCell<Vec<StackSlot>> = const { RefCell::new(Vec::new()) };
}

/// A stack's place in a slab. The slab lives as long as one of its places.
struct StackSlot {
    slab: Rc<Slab>,
    nth: usize,
}

/// A stack with its top moved down by its colour.
pub(crate) struct ColouredStack {
    /// `None` only during `drop`.
    place: Option<StackSlot>,
    base: StackPointer,
    limit: StackPointer,
}

impl ColouredStack {
    /// Returns a stack for coroutine number `id`; fails if the host has no more memory or mappings.
    pub(crate) fn new(id: usize) -> io::Result<Self> {
        let pooled = POOL.with_borrow_mut(|pool| -> io::Result<StackSlot> {
            if pool.is_empty() {
                let slab = Rc::new(Slab::new()?);
                let place = |nth| StackSlot { slab: Rc::clone(&slab), nth };
                pool.extend((0..SLAB_STACKS).rev().map(place));
            }
            Ok(pool.pop().expect("a slab has stacks"))
        })?;
        let (low, high) = pooled.slab.stack(pooled.nth);
        let colour = id % COLOURS * LINE_BYTES;
        let pointer = |address| StackPointer::new(address).expect("a stack is above address zero");
        Ok(Self { base: pointer(high - colour), limit: pointer(low), place: Some(pooled) })
    }
}

impl Drop for ColouredStack {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            // At the end of a host thread the pool may have been dropped: the stack is dropped too.
            let _ = POOL.try_with(|pool| pool.borrow_mut().push(place));
        }
    }
}

// SAFETY: base and limit are those of a place in a slab, which is at least 128 KiB apart from the
// next, begins and ends at a page, has a guard as its lowest page and is used by this stack alone.
// The base is lowered by at most 2 KiB in steps of a cache line, which keeps the alignment
// (asserted above) and far more than the minimum size.
unsafe impl Stack for ColouredStack {
    fn base(&self) -> StackPointer {
        self.base
    }
    fn limit(&self) -> StackPointer {
        self.limit
    }
}

/// Host resources of one coroutine stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StackNeeds {
    /// Address space, in bytes.
    pub address_bytes: u64,
    /// Mappings: 0 where the host marks guards inside of a mapping.
    pub mappings: u64,
}

/// Returns the resources that a task's stack needs on this host. Memory that it touches is not
/// counted.
pub fn stack_needs() -> StackNeeds {
    let marked = Slab::with(Guards::Marks).is_ok();
    let address_bytes = (STACK_BYTES + *GUARD_BYTES) as u64;
    StackNeeds { address_bytes, mappings: if marked { 0 } else { 2 } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corosensei::{Coroutine, CoroutineResult};
    use std::fs;
    use std::hint::black_box;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// The guard to run into, for this test program run as a child.
    const OVERFLOW: &str = "MMSCALE_TEST_OVERFLOW";

    fn has_marks() -> bool {
        let has = stack_needs().mappings == 0;
        if !has {
            eprintln!("live-test skipped: this kernel has no MADV_GUARD_INSTALL (Linux 6.13)");
        }
        has
    }

    fn mappings() -> usize {
        fs::read_to_string("/proc/self/maps").unwrap().lines().count()
    }

    #[test]
    fn many_stacks_take_few_mappings() {
        if !has_marks() {
            return;
        }
        let before = mappings();
        // Twice as many as there could be if each took two of 65,530 mappings.
        let stacks: Vec<_> = (0..70_000).map(|id| ColouredStack::new(id).unwrap()).collect();
        let more = mappings().saturating_sub(before);
        assert!(more < 100, "{} stacks took {more} mappings", stacks.len());
        let [mut one, mut other] = [&stacks[7], &stacks[69_990]].map(|stack| {
            let (top, low) = (stack.base().get(), stack.limit().get());
            assert!(top - low > STACK_BYTES - 4096);
            top - 8..top
        });
        assert!(one.next() != other.next(), "no two share memory");
    }

    /// Recurses until the stack overflows.
    #[expect(unconditional_recursion, reason = "it is to end at the guard")]
    fn deeper(depth: u64) -> u64 {
        let here = black_box([depth; 64]);
        deeper(here[0] + 1) + here[63]
    }

    #[test]
    fn an_overflow_ends_the_process_before_it_meets_the_next_stack() {
        if let Ok(guards) = std::env::var(OVERFLOW) {
            let guards = if guards == "marks" { Guards::Marks } else { Guards::Mappings };
            let slab = Rc::new(Slab::with(guards).unwrap());
            POOL.with_borrow_mut(|pool| pool.push(StackSlot { slab, nth: 1 }));
            let stack = ColouredStack::new(0).unwrap();
            let mut coroutine = Coroutine::<(), (), u64, _>::with_stack(stack, |_, ()| deeper(0));
            let CoroutineResult::Return(depth) = coroutine.resume(()) else { unreachable!() };
            println!("it came back from depth {depth}");
            return;
        }
        let all = if has_marks() { &["marks", "mappings"][..] } else { &["mappings"] };
        for guards in all {
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", "--nocapture"]);
            child.arg("stack::tests::an_overflow_ends_the_process_before_it_meets_the_next_stack");
            let output = child.env(OVERFLOW, guards).output().unwrap();
            let signal = output.status.signal();
            assert_eq!(signal, Some(libc::SIGSEGV), "{guards}: {output:?}");
        }
    }

    #[test]
    fn stacks_are_used_again() {
        let first = ColouredStack::new(3).unwrap().base();
        let places = || POOL.with_borrow(Vec::len);
        let before = places();
        assert_eq!(ColouredStack::new(3).unwrap().base(), first);
        assert_eq!(places(), before);
    }
}
