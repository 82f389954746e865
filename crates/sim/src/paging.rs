//! Page tables and translations on the running CPU: which accesses take a turn, and what is
//! checked.

use crate::engine::Engine;
use crate::heap::order_of;
use crate::outcome::Rule;
use crate::tables::UPPER;
use mmscale_arch::{Asid, CpuId, Order, PageEvent, Pfn, Trace, Translation, VmaRange, Vpn, Walked};
use std::ops::Range;

impl Engine {
    /// Stores a word without a turn. The running CPU holds the table's lock.
    pub(crate) fn table_store(&mut self, pfn: Pfn, word: usize, value: u64) {
        if self.quiet {
            self.tables.replace(pfn, word, value);
            return;
        }
        let times = (self.cpu().clock, self.heap.first_time_ps());
        self.tables.store(self.cpus.at(), (pfn, word), times, value);
    }
    /// Returns a word at the running CPU's time, at its turn.
    #[inline]
    pub(crate) fn table_now(&self, pfn: Pfn, word: usize) -> u64 {
        self.table_word(pfn, word).0
    }
    /// Returns a word as [`Engine::table_now`] does, and whether every other CPU would read that
    /// word too, at any time.
    #[inline]
    fn table_word(&self, pfn: Pfn, word: usize) -> (u64, bool) {
        let (stored, ahead) = self.tables.load_with_ahead(pfn, word);
        // Most often the last CPU to store is this CPU, or there is none.
        if ahead == self.cpus.at() {
            return (stored, true);
        }
        let now = self.cpus.running().order();
        match self.cpus.get(ahead) {
            Some(cpu) if cpu.order() > now => {
                let is_later = |time_ps| order_of(time_ps, cpu.rank) > now;
                let before = self.tables.before(ahead, (pfn, word), is_later);
                (before.unwrap_or(stored), before.is_none())
            }
            _ => (stored, true),
        }
    }
    /// Walks page tables at the running CPU's turn. The naive policy takes every step.
    #[inline]
    pub(crate) fn table_walk(
        &mut self,
        root: Pfn,
        path: &[usize],
        down: &impl Fn(u64) -> Option<Pfn>,
    ) -> Walked {
        match self.tables.remembered(root, path) {
            Some(upper) if !self.naive => match (path.get(UPPER), down(upper.entry)) {
                (Some(&index), Some(table)) => {
                    Walked { table, depth: UPPER, entry: self.table_now(table, index) }
                }
                _ => upper,
            },
            _ => self.table_walk_down(root, path, down),
        }
    }
    #[inline(never)]
    fn table_walk_down(
        &mut self,
        root: Pfn,
        path: &[usize],
        down: &impl Fn(u64) -> Option<Pfn>,
    ) -> Walked {
        let (mut passed, mut steps, mut last, mut settled) = ([root; UPPER], 0, 0, true);
        let walked = Walked::read(root, path, down, |table, index| {
            let (word, same) = self.table_word(table, index);
            if steps < UPPER {
                (passed[steps], last) = (table, word);
                settled &= same;
            }
            steps += 1;
            word
        });
        if settled && steps >= UPPER && down(last).is_some() {
            self.tables.remember(path, passed, last);
        }
        walked
    }
    /// Returns the first word among `indices` that is not 0 at the running CPU's time, at its turn.
    pub(crate) fn table_scan(&self, pfn: Pfn, indices: Range<usize>) -> Option<(usize, u64)> {
        let mut at = indices.start;
        while at < indices.end {
            at = self.tables.first_kept(pfn, at);
            let word = if at < indices.end { self.table_now(pfn, at) } else { 0 };
            if word != 0 {
                return Some((at, word));
            }
            at += 1;
        }
        None
    }
    /// Writes a word at the running CPU's turn, if it is `current`; returns the old one.
    pub(crate) fn table_exchange(
        &mut self,
        pfn: Pfn,
        word: usize,
        current: u64,
        new: u64,
    ) -> Result<u64, u64> {
        let found = self.table_now(pfn, word);
        if found == current { Ok(self.tables.replace(pfn, word, new)) } else { Err(found) }
    }

    /// Returns the running CPU's translation of `page`.
    pub(crate) fn tlb_lookup(&mut self, asid: Asid, page: Vpn) -> Option<Translation> {
        let found = self.tlbs.lookup(self.cpus.at(), asid, page)?;
        if found.freed && self.checker.on {
            let frame = found.translation.frame(page).index();
            let what = format!("reaches frame {frame}, which is free, by a stale translation");
            self.broken(Rule::StaleTranslation, what);
        }
        Some(found.translation)
    }
    /// Invalidates translations on all CPUs, at the running CPU's turn; returns the time of that,
    /// in ps. Broadcasts of several CPUs follow one another as far as the machine takes one at a
    /// time.
    pub(crate) fn tlb_broadcast(&mut self, asid: Asid, range: Option<VmaRange>) -> u64 {
        self.tlbs.flush_everywhere(asid, range);
        let now_ps = self.cpus.running().clock;
        let begins_ps = self.broadcast_free_ps.max(now_ps);
        self.broadcast_free_ps = begins_ps + self.costs.tlb_serial_ps;
        begins_ps - now_ps + self.costs.tlb_broadcast_ps
    }
    /// Checks that no CPU reaches a frame that is freed. A translation of the CPU's active address
    /// space is a violation; any other is marked, and using it is the violation.
    #[inline]
    pub(crate) fn check_reached(&mut self, event: &Trace) {
        if let Trace::Page(PageEvent::Free { pfn, order }) = *event
            && self.checker.on
            && !self.quiet
        {
            (0..Order::pages(order)).for_each(|page| self.check_frame_reached(pfn.offset(page)));
        }
    }
    fn check_frame_reached(&mut self, pfn: Pfn) {
        if self.tlbs.reach(pfn)
            && let Some(at) = self.tlbs.mark_freed(pfn)
        {
            let cpu = CpuId::new(at);
            let what = format!("frees frame {}, to which {cpu} has a translation", pfn.index());
            self.broken(Rule::StaleTranslation, what);
        }
    }
}
