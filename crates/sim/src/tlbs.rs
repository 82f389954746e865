//! The TLBs of the simulated CPUs, and how many translations reach each frame.
//!
//! A CPU uses its own translations without a turn, because no other CPU changes them. Where
//! invalidations are broadcast every CPU does, and each use waits for its turn: in all address
//! spaces, or in those for which a broadcast has been made. The first broadcast for an address
//! space is followed by interrupts to the CPUs that use it, so a use before the interrupt is in
//! time.

use crate::config::Checks;
use crate::profile::Profile;
use mmscale_arch::{
    Asid, PAGEBLOCK_ORDER, PageSize, Pfn, SoftTlb, TlbHit, Translation, VmaRange, Vpn,
};

/// Translations of all CPUs that reach each frame: those of single pages, and those of huge pages
/// by the number of the block. For the checker only.
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

/// The TLB of one CPU.
#[derive(Default)]
struct CpuTlb {
    tlb: SoftTlb,
    /// The address space whose translations the CPU uses.
    active: Option<Asid>,
}

/// The CPUs that may have translations of an address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum TlbScope {
    /// No CPU.
    #[default]
    None,
    /// This CPU only.
    One(u16),
    /// Any CPU.
    All,
}

/// The address spaces whose invalidations may be broadcast.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Broadcasts {
    /// None.
    None,
    /// Those that the memory manager chooses, and the kernel's.
    Some,
    /// All.
    All,
}

impl Broadcasts {
    pub(crate) fn of(profile: &Profile) -> Self {
        match (profile.costs.tlb_broadcast_ps, profile.tlb_broadcast_spaces) {
            (0, _) => Self::None,
            (_, 0) => Self::All,
            _ => Self::Some,
        }
    }
}

/// The TLBs of all CPUs.
pub(crate) struct Tlbs {
    cpus: Vec<CpuTlb>,
    /// The home of each address space, where invalidations are broadcast. Most spaces are used on
    /// one CPU, and a broadcast that visited every CPU for each space would take quadratic time.
    scopes: Option<Vec<TlbScope>>,
    broadcasts: Broadcasts,
    /// With [`Broadcasts::Some`]: whether a broadcast was made for the address space.
    shared: Vec<bool>,
    reached: Reached,
    /// Whether the checker is on.
    checked: bool,
}

impl Tlbs {
    pub(crate) fn new(cpus: usize, broadcasts: Broadcasts, checks: Checks) -> Self {
        let cpus = (0..cpus).map(|_| CpuTlb::default()).collect();
        let scopes = (broadcasts != Broadcasts::None).then(Vec::new);
        let (shared, reached) = (Vec::new(), Reached::default());
        Self { cpus, scopes, broadcasts, shared, reached, checked: checks == Checks::On }
    }
    /// Returns the address spaces whose invalidations may be broadcast.
    pub(crate) fn broadcasts(&self) -> Broadcasts {
        self.broadcasts
    }
    /// Returns whether another CPU may invalidate translations of `asid` in this CPU's TLB.
    #[inline]
    pub(crate) fn is_shared(&self, asid: Asid) -> bool {
        match self.broadcasts {
            Broadcasts::None => false,
            Broadcasts::Some => {
                asid == Asid::KERNEL || self.shared.get(asid.index()).copied().unwrap_or(false)
            }
            Broadcasts::All => true,
        }
    }
    /// Makes CPU `at` use the translations of `asid`.
    pub(crate) fn load(&mut self, at: usize, asid: Option<Asid>) {
        self.cpus[at].active = asid;
    }
    /// Returns the translation of `page` in the TLB of CPU `at`.
    #[inline]
    pub(crate) fn lookup(&self, at: usize, asid: Asid, page: Vpn) -> Option<TlbHit> {
        self.cpus[at].tlb.lookup(asid, page)
    }
    pub(crate) fn fill(&mut self, at: usize, asid: Asid, page: Vpn, new: Translation) {
        let old = self.cpus[at].tlb.fill(asid, page, new);
        if let Some(scopes) = &mut self.scopes {
            if asid.index() >= scopes.len() {
                scopes.resize((asid.index() + 1).next_power_of_two(), TlbScope::None);
            }
            let scope = &mut scopes[asid.index()];
            let here = TlbScope::One(at as u16);
            if *scope != here {
                *scope = if *scope == TlbScope::None { here } else { TlbScope::All };
            }
        }
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
    /// Invalidates translations on every CPU.
    pub(crate) fn flush_everywhere(&mut self, asid: Asid, range: Option<VmaRange>) {
        if self.broadcasts == Broadcasts::Some && asid.index() >= self.shared.len() {
            self.shared.resize((asid.index() + 1).next_power_of_two(), false);
        }
        if let Some(shared) = self.shared.get_mut(asid.index()) {
            *shared = true;
        }
        let scope = self.scopes.as_mut().and_then(|scopes| scopes.get_mut(asid.index()));
        match scope.as_deref().copied() {
            Some(TlbScope::None) => {}
            Some(TlbScope::One(at)) => self.flush(usize::from(at), asid, range),
            Some(TlbScope::All) | None => {
                if let Some(scope) = scope.filter(|_| range.is_none()) {
                    *scope = TlbScope::None;
                }
                (0..self.cpus.len()).for_each(|at| self.flush(at, asid, range));
            }
        }
    }
    /// Whether any CPU has a translation to `pfn`.
    #[inline]
    pub(crate) fn reach(&self, pfn: Pfn) -> bool {
        self.reached.any(pfn)
    }
    /// Marks all translations to `pfn`, which was freed. Returns a CPU whose active address space
    /// has one, if there is any.
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

#[cfg(test)]
mod tests {
    use super::*;

    const CPUS: usize = 4;
    const SPACES: usize = 3;
    const PAGES: u64 = 80;

    /// A broadcast that uses homes has the same result as one that visits every CPU.
    #[test]
    fn a_broadcast_reaches_every_translation_wherever_it_is() {
        let mut rng = crate::rng::SplitMix64::new(5);
        let [mut known, mut asked] =
            [Broadcasts::All, Broadcasts::None].map(|on| Tlbs::new(CPUS, on, Checks::Off));
        let mut spared = 0;
        for step in 0..20_000 {
            let mut below = |end: u64| rng.below(end);
            let asid = Asid::new(1 + below(SPACES as u64) as usize);
            // Each of two CPUs mostly uses one space, so that there are homes.
            let at = if below(20) == 0 { below(CPUS as u64) as usize } else { asid.index() };
            let page = Vpn::new(below(PAGES));
            let (pfn, size) = (Pfn::new(step), PageSize::Base);
            let new = Translation { pfn, size, writable: true, dirty: false };
            let range = match below(8) {
                0 => Some(None),
                1 => Some(VmaRange::with_pages(page, 1 + below(40))),
                _ => None,
            };
            let scope = known.scopes.as_ref().and_then(|scopes| scopes.get(asid.index()));
            spared += usize::from(range.is_some() && matches!(scope, Some(TlbScope::One(_))));
            for tlbs in [&mut known, &mut asked] {
                match range {
                    Some(range) => tlbs.flush_everywhere(asid, range),
                    None => tlbs.fill(at, asid, page, new),
                }
            }
            let at_all = (0..CPUS).map(|at| (known.cpus[at].tlb.len(), asked.cpus[at].tlb.len()));
            at_all.for_each(|(known, asked)| assert_eq!(known, asked, "step {step}"));
        }
        assert!(spared > 100, "{spared} broadcasts looked at one CPU");
    }
}
