//! The end of an address space (`exit_mmap`).

use super::mmap::locked_of;
use super::zap::Retire;
use super::{Backing, Space, VmaRange};
use crate::arch::{Arch, Func, Span};
use crate::table::Gather;

impl<A: Arch> Space<A> {
    /// Gives everything back. The caller was the last to use the address space; nobody will again,
    /// but for those who [reap](Space::reap) it.
    ///
    /// Pages go first, lowest first, with mmap_lock held for reading and the VMAs still there; then
    /// VMAs and tables, with it held for writing: that waits for whoever is still reaping, and who
    /// comes later finds nothing.
    pub fn exit(&self, on: Backing<'_, A>) {
        let _span = Span::<A>::enter(Func::ExitMmap);
        on.memory.blanket_drain();
        let mut gather = Gather::new_whole(&self.table);
        {
            let vmas = self.lock.read();
            let _span = Span::<A>::enter(Func::UnmapVmas);
            for (area, range) in vmas.areas(VmaRange::USER) {
                let done = self.zap(on, &mut gather, range, locked_of(&area));
                debug_assert!(done, "no huge page reaches across the end of a VMA");
            }
        }
        self.skip();
        let mut change = self.change();
        let _ = self.take_areas(&mut change, VmaRange::USER);
        drop(change);
        let mut sink = Retire(on);
        let all = VmaRange::USER;
        self.table.free_tables(on.paging, &mut gather, &mut sink, all, all);
        gather.finish(on.paging, &mut sink);
        on.spaces.leave(self);
        self.table.destroy(on.paging);
    }
}
