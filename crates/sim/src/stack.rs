//! Stacks of coroutines: pooled on each host thread, with coloured tops.

use corosensei::stack::{DefaultStack, STACK_ALIGNMENT, Stack, StackPointer};
use std::cell::RefCell;

/// Bytes of a stack; only what is used takes up memory.
const STACK_BYTES: usize = 128 * 1024;
/// Tops are this many cache lines apart at most: a page's worth, so that the hot ends of stacks,
/// all of which begin at a page's end, do not share a few sets of the host's caches.
const COLOURS: usize = 32;
/// Bytes of a host cache line.
const LINE_BYTES: usize = 64;

const _: () = assert!(LINE_BYTES.is_multiple_of(STACK_ALIGNMENT));

thread_local! {
    /// Stacks of earlier runs: making one costs the host about 10 us.
    static POOL: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// A stack with its top moved down by its colour.
pub(crate) struct ColouredStack {
    /// `None` only while it is being dropped.
    stack: Option<DefaultStack>,
    base: StackPointer,
    limit: StackPointer,
}

impl ColouredStack {
    /// A stack for coroutine number `id`.
    ///
    /// # Panics
    /// If the host gives no more memory or mappings: each stack takes two mappings.
    pub(crate) fn new(id: usize) -> Self {
        let pooled = POOL.with_borrow_mut(Vec::pop);
        let stack = pooled.unwrap_or_else(|| {
            DefaultStack::new(STACK_BYTES).unwrap_or_else(|error| {
                panic!(
                    "making coroutine stack {id}: {error}; raise vm.max_map_count or use fewer cpus"
                )
            })
        });
        let colour = id % COLOURS * LINE_BYTES;
        let base = StackPointer::new(stack.base().get() - colour);
        let base = base.expect("a stack is far above address zero");
        Self { base, limit: stack.limit(), stack: Some(stack) }
    }
}

impl Drop for ColouredStack {
    fn drop(&mut self) {
        if let Some(stack) = self.stack.take() {
            // At the end of a host thread the pool may be gone: the stack goes too.
            let _ = POOL.try_with(|pool| pool.borrow_mut().push(stack));
        }
    }
}

// SAFETY: the base is that of a `DefaultStack`, lowered by at most 2 KiB in steps of a cache line,
// which keeps the alignment (asserted above) and far more than the minimum size; the limit and the
// guard page are the inner stack's own.
unsafe impl Stack for ColouredStack {
    fn base(&self) -> StackPointer {
        self.base
    }
    fn limit(&self) -> StackPointer {
        self.limit
    }
}
