//! The TLBs of the simulated CPUs, and how many translations reach each frame.
//!
//! A CPU's own translations are used without a turn, as nobody else changes them. Where there is a
//! broadcast everybody does, and each use waits for its turn.

use crate::config::Checks;
use mmscale_mm::arch::{
    Asid, Found, PAGEBLOCK_ORDER, PageSize, Pfn, SoftTlb, Translation, VmaRange, Vpn,
};

/// How many translations of all CPUs reach each frame: of single pages, and of huge ones by the
/// number of the block. Kept for the checker only.
#[derive(Default)]
struct Reached {
    base: Vec<u16>,
    huge: Vec<u16>,
}

impl Reached {
    fn of(&mut self, translation: Translation) -> &mut u16 {
        let (counts, at) = match translation.size {
            PageSize::Base => (&mut self.base, translation.pfn.index()),
            PageSize::Huge => (&mut self.huge, translation.pfn.index() >> PAGEBLOCK_ORDER),
        };
        if at >= counts.len() {
            counts.resize((at + 1).next_power_of_two(), 0);
        }
        &mut counts[at]
    }
    fn add(&mut self, translation: Translation) {
        *self.of(translation) += 1;
    }
    fn take(&mut self, translation: Translation) {
        *self.of(translation) -= 1;
    }
    fn any(&self, pfn: Pfn) -> bool {
        let count = |counts: &[u16], at: usize| counts.get(at).is_some_and(|&count| count > 0);
        count(&self.base, pfn.index()) || count(&self.huge, pfn.index() >> PAGEBLOCK_ORDER)
    }
}

/// One CPU's.
#[derive(Default)]
struct CpuTlb {
    tlb: SoftTlb,
    /// The address space whose translations the CPU uses.
    active: Option<Asid>,
}

/// All of them.
pub(crate) struct Tlbs {
    cpus: Vec<CpuTlb>,
    reached: Reached,
    /// The checker looks on.
    checked: bool,
}

impl Tlbs {
    pub(crate) fn new(cpus: usize, checks: Checks) -> Self {
        let cpus = (0..cpus).map(|_| CpuTlb::default()).collect();
        Self { cpus, reached: Reached::default(), checked: checks == Checks::On }
    }
    /// CPU `at` uses the translations of `asid` from now on.
    pub(crate) fn load(&mut self, at: usize, asid: Option<Asid>) {
        self.cpus[at].active = asid;
    }
    /// The translation of `page` that CPU `at` keeps.
    #[inline]
    pub(crate) fn lookup(&self, at: usize, asid: Asid, page: Vpn) -> Option<Found> {
        self.cpus[at].tlb.lookup(asid, page)
    }
    pub(crate) fn fill(&mut self, at: usize, asid: Asid, page: Vpn, new: Translation) {
        let old = self.cpus[at].tlb.fill(asid, page, new);
        if self.checked {
            old.into_iter().for_each(|old| self.reached.take(old));
            self.reached.add(new);
        }
    }
    pub(crate) fn flush(&mut self, at: usize, asid: Asid, range: Option<VmaRange>) {
        let (reached, checked) = (&mut self.reached, self.checked);
        self.cpus[at].tlb.flush(asid, range, |old| {
            if checked {
                reached.take(old);
            }
        });
    }
    /// Whether any CPU keeps a translation to `pfn`.
    #[inline]
    pub(crate) fn reach(&self, pfn: Pfn) -> bool {
        self.reached.any(pfn)
    }
    /// Marks all translations to `pfn`, which was freed; returns a CPU that uses one, if any does.
    #[cold]
    pub(crate) fn mark_freed(&mut self, pfn: Pfn) -> Option<usize> {
        let mut used_on = None;
        for (at, cpu) in self.cpus.iter_mut().enumerate() {
            let active = cpu.active;
            cpu.tlb.mark_freed(pfn, |asid| {
                if active == Some(asid) {
                    used_on = used_on.or(Some(at));
                }
            });
        }
        used_on
    }
}
