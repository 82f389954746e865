//! Address spaces: which pages of a process are mapped, and as what.
//!
//! * `tree`: the VMAs of an address space in order, a B-tree that knows its gaps.
//! * `vma`: VMAs by number, so that one can be held on to while the tree changes.
//!
//! # Who finds a VMA, and how
//! The tree belongs to mmap_lock: reading it (`&VmaTree`) takes the lock for reading, changing it
//! (`&mut VmaTree`) for writing. A page fault does without. An address space keeps a
//! [`VmaFinder`] and a [`VmaLookup`] beside the lock, and a fault
//!
//! 1. asks the finder for the id at the page ([`VmaFinder::find`]); it reads the tree while it
//!    may be changing, so the answer is a hint;
//! 2. asks the lookup for the VMA of that id ([`VmaLookup::get`]); ids of the past give nothing;
//! 3. tries to take that VMA's own lock for reading;
//! 4. asks, with the lock held, whether the id still lives ([`VmaLookup::is_live`]) and whether
//!    the VMA's own range holds the page;
//! 5. on any no it lets go, and does it all again under mmap_lock.
//!
//! The other side, with mmap_lock held for writing, takes a VMA's lock for writing before it
//! changes its range or flags, removes it from the tree or ends its id ([`VmaSlots::free`]), and
//! keeps it until all of that is done. So a fault that passed step 4 has a VMA that is in the tree
//! and stays there until the fault lets go. A hint that was wrong costs one more look.
//!
//! Lock order: mmap_lock, then the lock of a VMA.

mod arena;
mod tree;
mod vma;

pub use crate::arch::{ADDRESS_BITS, PAGE_SHIFT, PAGE_SIZE, USER_END, VmaRange, Vpn};
pub use tree::{
    Edit, Found, GapRequest, InsertError, Iter, Overlap, TreeAudit, TreeDefect, TreeWord, VmaEntry,
    VmaFinder, VmaTree,
};
pub use vma::{VmaId, VmaLookup, VmaSlots};

/// There is no memory for a node or a slot: nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoMemory;

impl core::fmt::Display for NoMemory {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("no memory for a tree node or a slot: free some and try again")
    }
}

impl core::error::Error for NoMemory {}
