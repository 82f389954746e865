//! The locks of the roots of `anon_vma`s, and the place of a VMA in the tree of one: see
//! `reverse::links`.

use mmscale_arch::sync::{Numbers, ReadGuard, RwSem, RwsemPolicy, Sparse};
use mmscale_arch::{LockClass, Machine, Op};

/// The most roots of a machine.
const ROOTS_MAX: usize = 1 << 20;

/// The root of a tree of `anon_vma`s.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RootId(u32);

/// The place of a VMA in a tree of `anon_vma`s.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnonChain {
    pub(crate) root: RootId,
    /// The number of `anon_vma`s that the VMA is linked to: one for each fork, and the root.
    pub(crate) links: u32,
}

impl AnonChain {
    /// Returns the value as a word; 0 for none.
    pub(super) const fn to_word(this: Option<Self>) -> u64 {
        match this {
            Some(Self { root, links }) => ((links as u64) << 32) | (root.0 as u64 + 1),
            None => 0,
        }
    }
    pub(super) const fn from_word(word: u64) -> Option<Self> {
        match (word as u32).checked_sub(1) {
            Some(root) => Some(Self { root: RootId(root), links: (word >> 32) as u32 }),
            None => None,
        }
    }
}

/// The locks of all roots.
pub(crate) struct Roots<A: Machine> {
    locks: Sparse<RwSem<A, ()>>,
    policy: RwsemPolicy,
    numbers: Numbers<A>,
}

impl<A: Machine> Roots<A> {
    pub(crate) fn new(policy: RwsemPolicy) -> Self {
        Self { locks: Sparse::new(ROOTS_MAX), policy, numbers: Numbers::new(0..ROOTS_MAX) }
    }
    fn of(&self, root: RootId) -> &RwSem<A, ()> {
        let make = |_| RwSem::with_policy(self.policy, LockClass::AnonVma, ());
        self.locks.get_or_make(root.0 as usize, make)
    }
    /// Locks a root for a walk.
    pub(crate) fn read(&self, root: RootId) -> ReadGuard<'_, A, ()> {
        self.of(root).read()
    }
    /// Locks a root for a walk, unless that would wait.
    pub(crate) fn try_read(&self, root: RootId) -> Option<ReadGuard<'_, A, ()>> {
        self.of(root).try_read()
    }
    /// Holds a root's lock for the time of `links` links.
    pub(crate) fn link(&self, chain: AnonChain, links: u32) {
        let _tree = self.of(chain.root).write();
        A::work(Op::RmapLink, links);
    }
    /// Allocates a root.
    pub(crate) fn take(&self) -> Option<RootId> {
        self.numbers.take().map(|number| RootId(number as u32))
    }
    /// Frees the number of a root that no VMA has any more.
    pub(crate) fn give(&self, root: RootId) {
        self.numbers.give(root.0 as usize);
    }
}
