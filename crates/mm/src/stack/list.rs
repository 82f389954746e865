//! One CPU's stacks: its cache, and those on their way to be freed. No memory is needed for either:
//! a stack has the link to the next one.

use alloc::boxed::Box;
use mmscale_arch::{Pfn, VmaRange, Vpn};

/// Pages of a stack (`THREAD_SIZE`).
pub const STACK_PAGES: usize = 4;
/// Stacks that a CPU keeps for tasks to come (`NR_CACHED_STACKS`).
const CACHED: usize = 2;

struct Mapped {
    range: VmaRange,
    frames: [Pfn; STACK_PAGES],
    next: Option<Stack>,
}

/// The stack of one task. It goes back by [`super::Stacks::leave`] or [`super::Stacks::put`].
#[must_use]
pub struct Stack(Box<Mapped>);

impl Stack {
    pub(super) fn new(range: VmaRange, frames: [Pfn; STACK_PAGES]) -> Self {
        Self(Box::new(Mapped { range, frames, next: None }))
    }
    /// Where its frames are mapped.
    pub fn range(&self) -> VmaRange {
        self.0.range
    }
    /// Its frames.
    pub fn frames(&self) -> &[Pfn] {
        &self.0.frames
    }
    /// The page where a task begins to use it.
    pub fn top(&self) -> Vpn {
        Vpn::new(self.0.range.end().get() - 1)
    }
}

/// Stacks; the one that was put there last is the first.
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
    /// Takes all stacks of `other`.
    fn append(&mut self, other: &mut Self) {
        while let Some(stack) = other.pop() {
            self.push(stack);
        }
    }
}

/// One CPU's stacks that no task runs on.
#[derive(Default)]
pub(super) struct CpuStacks {
    pub(super) cached: [Option<Stack>; CACHED],
    /// For these a grace period has to begin.
    pub(super) waiting: List,
    /// Their grace period has begun.
    pub(super) passing: List,
    /// Their grace period is over.
    pub(super) ready: List,
}

impl CpuStacks {
    /// Takes a stack out of the cache.
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
    /// A grace period begins for all that wait.
    pub(super) fn begin(&mut self) {
        self.passing.append(&mut self.waiting);
    }
    /// It is over.
    pub(super) fn pass(&mut self) {
        self.ready.append(&mut self.passing);
    }
    /// Returns the next stack to free; those that the cache has room for are put there.
    pub(super) fn take_ready(&mut self) -> Option<Stack> {
        loop {
            let stack = self.ready.pop()?;
            if let Some(left) = self.put(stack) {
                return Some(left);
            }
        }
    }
}

// Popped one by one: a list that drops itself from its first would need a stack as deep as it is
// long.
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
