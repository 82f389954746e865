//! The stacks of one CPU: its cache, and the stacks that wait to be freed. Neither needs memory:
//! each stack has the link to the next one.

use alloc::boxed::Box;
use mmscale_arch::{Pfn, VmaRange, Vpn};

/// Pages of a stack (`THREAD_SIZE`).
pub const STACK_PAGES: usize = 4;
/// Stacks in a CPU's cache (`NR_CACHED_STACKS`).
const CACHED: usize = 2;

struct Mapped {
    range: VmaRange,
    frames: [Pfn; STACK_PAGES],
    next: Option<Stack>,
}

/// The stack of one task. Returned by [`super::Stacks::leave`] or [`super::Stacks::put`].
#[must_use]
pub struct Stack(Box<Mapped>);

impl Stack {
    pub(super) fn new(range: VmaRange, frames: [Pfn; STACK_PAGES]) -> Self {
        Self(Box::new(Mapped { range, frames, next: None }))
    }
    /// Returns the addresses at which its frames are mapped.
    pub fn range(&self) -> VmaRange {
        self.0.range
    }
    /// Returns its frames.
    pub fn frames(&self) -> &[Pfn] {
        &self.0.frames
    }
    /// Returns the page at which a task starts to use it.
    pub fn top(&self) -> Vpn {
        Vpn::new(self.0.range.end().get() - 1)
    }
}

/// A linked list of stacks, last in first out.
#[derive(Default)]
pub(super) struct List(Option<Stack>);

impl List {
    pub(super) fn push(&mut self, mut stack: Stack) {
        stack.0.next = self.0.take();
        self.0 = Some(stack);
    }
    pub(super) fn pop(&mut self) -> Option<Stack> {
        let mut first = self.0.take()?;
        self.0 = first.0.next.take();
        Some(first)
    }
    /// Moves all stacks of `other` to this list.
    fn append(&mut self, other: &mut Self) {
        while let Some(stack) = other.pop() {
            self.push(stack);
        }
    }
}

/// A CPU's stacks on which no task runs.
#[derive(Default)]
pub(super) struct CpuStacks {
    pub(super) cached: [Option<Stack>; CACHED],
    /// Stacks for which no grace period has begun yet.
    pub(super) waiting: List,
    /// Stacks whose grace period has begun.
    pub(super) passing: List,
    /// Stacks whose grace period is over.
    pub(super) ready: List,
}

impl CpuStacks {
    /// Takes a stack from the cache.
    pub(super) fn take(&mut self) -> Option<Stack> {
        self.cached.iter_mut().find_map(Option::take)
    }
    /// Puts a stack into the cache; returns it if there is no room.
    pub(super) fn put(&mut self, stack: Stack) -> Option<Stack> {
        match self.cached.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => {
                *slot = Some(stack);
                None
            }
            None => Some(stack),
        }
    }
    /// Records that a grace period begins for all waiting stacks.
    pub(super) fn begin(&mut self) {
        self.passing.append(&mut self.waiting);
    }
    /// Records that the grace period is over.
    pub(super) fn pass(&mut self) {
        self.ready.append(&mut self.passing);
    }
    /// Returns the next stack to free; puts stacks for which the cache has room there.
    pub(super) fn take_ready(&mut self) -> Option<Stack> {
        loop {
            let stack = self.ready.pop()?;
            if let Some(left) = self.put(stack) {
                return Some(left);
            }
        }
    }
}

// Popped one by one: dropping the list recursively would need stack space in proportion to its
// length.
impl Drop for List {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(at: u64) -> Stack {
        let range = VmaRange::with_pages(Vpn::new(at), STACK_PAGES as u64).unwrap();
        Stack::new(range, [Pfn::new(at as usize); STACK_PAGES])
    }

    #[test]
    fn a_cpu_keeps_two_and_frees_the_rest_after_a_grace_period() {
        let mut stacks = CpuStacks::default();
        for at in [10, 20, 30, 40] {
            if let Some(left) = stacks.put(stack(at)) {
                stacks.waiting.push(left);
            }
        }
        assert!(stacks.take_ready().is_none());
        stacks.begin();
        stacks.waiting.push(stack(50));
        stacks.pass();
        let top = |stack: Option<Stack>| stack.map(|stack| stack.top().get());
        assert_eq!(top(stacks.take()), Some(13));
        // One of the two that are ready fills the cache again.
        let freed = top(stacks.take_ready());
        assert!(freed == Some(33) || freed == Some(43), "{freed:?}");
        assert!(stacks.take_ready().is_none());
        assert_eq!(stacks.cached.iter().flatten().count(), 2);
        assert_eq!((top(stacks.waiting.pop()), top(stacks.ready.pop())), (Some(53), None));
    }

    #[test]
    fn a_long_list_goes_without_a_deep_stack() {
        let mut list = List::default();
        (0..200_000).for_each(|at| list.push(stack(4 * at)));
        drop(list);
    }
}
