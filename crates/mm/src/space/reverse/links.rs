//! The locks of the reverse map: which operations on VMAs take them, and for how long.
//!
//! A file has one lock for all VMAs that map it (`i_mmap_rwsem`), unless a policy splits it
//! (`space::mappings`). Anonymous memory has one lock for
//! a VMA and all its copies by fork, the lock of the root `anon_vma`. Walks of the reverse map hold
//! it for reading, changes of VMAs for writing. Here the reverse map finds VMAs by their number, so
//! nothing is linked under these locks: the sections only take the time of the links
//! ([`Op::RmapLink`]), and keep one another out.
//!
//! The sections follow Linux 6.18 (`mm/rmap.c`, `mm/vma.c`, `mm/mmap.c`):
//!
//! | operation | `i_mmap_rwsem` | root `anon_vma` |
//! |---|---|---|
//! | mmap; mremap elsewhere | link the VMA | link it to each `anon_vma` of the chain |
//! | split, merge, resize | link again | link again |
//! | fork | link the copy | link the copy to the chain; then link its own `anon_vma` |
//! | munmap, exit, before the tables go | unlink, 8 VMAs at a time | unlink the chain |
//! | a walk of the reverse map | (files are not reclaimed here) | held for reading |
//!
//! A VMA that was never forked has a root of its own. Only its own process takes that lock, so it
//! has none here, and its time is part of the other costs of the operation. The first fork of a VMA
//! with anonymous pages makes the root. The chain of a copy is one `anon_vma` longer than its
//! parent's. VMAs of different roots are merged here but not in Linux; the result has the lower
//! one's root.
//!
//! Lock order: mmap_lock and the locks of VMAs, then one of these. A writer waits for nothing and
//! allocates no memory, so a walk may wait for it with a VMA's lock held.

use crate::space::registry::FamilyId;
use crate::space::vma::{AnonChain, Link, RootId, Roots};
use crate::space::{FileMap, MmRef, Space, Vma};
use alloc::sync::Arc;
use mmscale_arch::{Func, Machine, Span};

/// The most VMAs of one tree that are unlinked at a time.
const UNLINK_BATCH: u32 = 8;

impl<A: Machine> Space<A> {
    /// Links the entries of `vma` in the reverse map, or links them again after a change of its
    /// ends.
    pub(crate) fn link(&self, vma: &Vma, link: Link) {
        let vmas = if let Link::Split = link { 2 } else { 1 };
        if let Some(map) = vma.file {
            let func = Func::VmaLinkFile;
            match link {
                Link::New | Link::Split => self.link_file(func, map, vmas, 1),
                Link::Again => self.link_file(func, map, 1, 0),
                Link::Join(Vma { file: Some(gone), .. }) if gone.tree != map.tree => {
                    self.link_file(func, gone, 1, -1);
                    self.link_file(func, map, 1, 0);
                }
                Link::Join(_) => self.link_file(func, map, 1, -1),
            }
        }
        if let Some(chain) = vma.anon {
            let _span = Span::<A>::enter(Func::AnonVmaClone);
            self.roots.link(chain, vmas * chain.links);
        }
    }
    /// Links or unlinks `links` VMAs that map a file, after which `more` of them are linked.
    fn link_file(&self, func: Func, map: FileMap, links: u32, more: i32) {
        let _span = Span::<A>::enter(func);
        if let Some(file) = self.file(map.id) {
            file.mappings().change(map.id, map.tree, links, more);
        }
    }
    /// Unlinks VMAs, of which no page is mapped any more (`free_pgtables`).
    pub(crate) fn unlink(&self, vmas: impl Iterator<Item = Vma>) {
        let (mut batch, mut count): (Option<FileMap>, u32) = (None, 0);
        let flush = |batch: Option<FileMap>, count: u32| {
            if let Some(map) = batch {
                self.link_file(Func::UnlinkFileVmas, map, count, -(count as i32));
            }
        };
        for vma in vmas {
            if let Some(chain) = vma.anon {
                let _span = Span::<A>::enter(Func::UnlinkAnonVmas);
                self.roots.link(chain, chain.links);
            }
            let Some(map) = vma.file else { continue };
            let of_batch = |batch: FileMap| (batch.id, batch.tree) == (map.id, map.tree);
            if !batch.is_some_and(of_batch) || count == UNLINK_BATCH {
                flush(batch, count);
                (batch, count) = (Some(map), 0);
            }
            count += 1;
        }
        flush(batch, count);
    }
    /// Links the copy of `vma` that a fork has made in a space of the same family
    /// (`anon_vma_fork`). Returns the chains of `vma` and of the copy; `None` if there are too many
    /// roots.
    pub(crate) fn link_copy(&self, on: MmRef<'_, A>, vma: &Vma) -> Option<(AnonChain, AnonChain)> {
        let chain = match vma.anon {
            Some(chain) => chain,
            None => AnonChain { root: on.spaces.new_root(self.family)?, links: 1 },
        };
        {
            let _span = Span::<A>::enter(Func::AnonVmaClone);
            self.roots.link(chain, chain.links);
        }
        let _span = Span::<A>::enter(Func::AnonVmaFork);
        self.roots.link(chain, 1);
        Some((chain, AnonChain { links: chain.links + 1, ..chain }))
    }
}

impl<A: Machine> crate::space::Spaces<A> {
    /// Makes a root that ends with the family.
    fn new_root(&self, family: FamilyId) -> Option<RootId> {
        let root = self.roots().take()?;
        self.note_root(family, root);
        Some(root)
    }
    /// Returns the locks of the reverse map, for a new address space.
    pub(crate) fn shared_roots(&self) -> Arc<Roots<A>> {
        Arc::clone(self.roots())
    }
}
