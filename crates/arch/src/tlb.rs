//! A software TLB, for machines that have no other.

use super::{Asid, PageSize, Pfn, Translation, VmaRange, Vpn};
use alloc::boxed::Box;

/// Entries of a set: their page numbers have the same low bits.
const WAYS: usize = 4;
/// Sets of single pages, and of huge ones. Together 288 translations, of which a processor of
/// today has 64 to 96 at the first level and 1024 to 2048 at the second.
const BASE_SETS: usize = 64;
const HUGE_SETS: usize = 8;
const ENTRIES: usize = (BASE_SETS + HUGE_SETS) * WAYS;

const HUGE_PAGES: u64 = PageSize::Huge.pages();
const VPN_BITS: u32 = 36;
const WRITABLE: u64 = 1 << 32;
const DIRTY: u64 = 1 << 33;
const FREED: u64 = 1 << 34;

/// One translation.
///
/// | word | bits | content |
/// |---|---|---|
/// | `key` | 0-35 | the page number divided by the pages of a translation of the set's size |
/// | `key` | 36- | the address space; a `key` of 0 is an empty entry |
/// | `value` | 0-31 | the frame |
/// | `value` | 32, 33, 34 | writable, dirty, and freed: set by [`SoftTlb::mark_freed`] |
#[derive(Clone, Copy)]
struct Entry {
    key: u64,
    value: u64,
}

const NO_ENTRY: Entry = Entry { key: 0, value: 0 };

/// A TLB of one CPU, 4.6 KiB once it is used. Replacement is round robin in each set.
#[derive(Default)]
pub struct SoftTlb {
    entries: Option<Box<[Entry; ENTRIES]>>,
    /// Entries in use.
    live: usize,
    /// Counter of replacements in full sets; modulo [`WAYS`] it is the entry to replace.
    hand: usize,
}

/// A translation found in a [`SoftTlb`], with the mark of a checker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TlbHit {
    /// The translation.
    pub translation: Translation,
    /// Whether its frame was freed since ([`SoftTlb::mark_freed`]).
    pub freed: bool,
}

#[inline]
const fn key(asid: Asid, page: u64) -> u64 {
    (asid.0 as u64) << VPN_BITS | page
}

#[inline]
const fn set_of(page: Vpn, size: PageSize) -> (usize, u64) {
    match size {
        PageSize::Base => (page.get() as usize % BASE_SETS, page.get()),
        PageSize::Huge => {
            let block = page.get() / HUGE_PAGES;
            (BASE_SETS + block as usize % HUGE_SETS, block)
        }
    }
}

#[inline]
const fn size_of_slot(slot: usize) -> PageSize {
    if slot < BASE_SETS * WAYS { PageSize::Base } else { PageSize::Huge }
}

impl Entry {
    fn translation(self, size: PageSize) -> Translation {
        Translation {
            pfn: Pfn::new((self.value & u64::from(u32::MAX)) as usize),
            size,
            writable: self.value & WRITABLE != 0,
            dirty: self.value & DIRTY != 0,
        }
    }
    /// The address space, and the first page of the translation.
    const fn tag(self, size: PageSize) -> (Asid, u64) {
        let unit = self.key & ((1 << VPN_BITS) - 1);
        (Asid((self.key >> VPN_BITS) as u32), unit * size.pages())
    }
}

impl SoftTlb {
    /// A TLB without translations.
    pub const EMPTY: Self = Self { entries: None, live: 0, hand: 0 };

    /// Looks up the translation of `page`.
    #[inline]
    pub fn lookup(&self, asid: Asid, page: Vpn) -> Option<TlbHit> {
        let entries = self.entries.as_ref()?;
        for size in [PageSize::Base, PageSize::Huge] {
            let (set, unit) = set_of(page, size);
            let wanted = key(asid, unit);
            let ways = &entries[set * WAYS..(set + 1) * WAYS];
            if let Some(entry) = ways.iter().find(|entry| entry.key == wanted) {
                let freed = entry.value & FREED != 0;
                return Some(TlbHit { translation: entry.translation(size), freed });
            }
        }
        None
    }
    /// Stores a translation; returns the one that it replaces.
    pub fn fill(&mut self, asid: Asid, page: Vpn, new: Translation) -> Option<Translation> {
        let (set, unit) = set_of(page, new.size);
        let wanted = key(asid, unit);
        let entries = self.entries.get_or_insert_with(|| Box::new([NO_ENTRY; ENTRIES]));
        let ways = &mut entries[set * WAYS..(set + 1) * WAYS];
        let at = ways.iter().position(|entry| entry.key == wanted);
        let at = at.or_else(|| ways.iter().position(|entry| entry.key == 0)).unwrap_or_else(|| {
            self.hand = self.hand.wrapping_add(1);
            self.hand % WAYS
        });
        let flags = (u64::from(new.writable) * WRITABLE) | (u64::from(new.dirty) * DIRTY);
        let old = core::mem::replace(
            &mut ways[at],
            Entry { key: wanted, value: new.pfn.index() as u64 | flags },
        );
        if old.key == 0 {
            self.live += 1;
            return None;
        }
        Some(old.translation(new.size))
    }
    /// Invalidates the translations of `asid` that cover a page of `range`, or all; calls `dropped`
    /// for each.
    pub fn flush(
        &mut self,
        asid: Asid,
        range: Option<VmaRange>,
        mut dropped: impl FnMut(Translation),
    ) {
        let Some(entries) = self.entries.as_mut().filter(|_| self.live > 0) else { return };
        let live = &mut self.live;
        let mut drop_one = |entry: &mut Entry, size| {
            dropped(entry.translation(size));
            *entry = NO_ENTRY;
            *live -= 1;
        };
        let Some(range) = range.filter(|range| range.pages() < BASE_SETS as u64 / 2) else {
            for (slot, entry) in entries.iter_mut().enumerate() {
                let size = size_of_slot(slot);
                let (whose, first) = entry.tag(size);
                let hit = |range: VmaRange| {
                    first < range.end().get() && range.start().get() < first + size.pages()
                };
                if entry.key != 0 && whose == asid && range.is_none_or(hit) {
                    drop_one(entry, size);
                }
            }
            return;
        };
        // A small range covers at most two huge pages: search only the sets of these pages.
        let mut look = |page: u64, size| {
            let (set, unit) = set_of(Vpn::new(page), size);
            let ways = &mut entries[set * WAYS..(set + 1) * WAYS];
            let found = ways.iter_mut().find(|entry| entry.key == key(asid, unit));
            if let Some(entry) = found {
                drop_one(entry, size);
            }
        };
        let (start, last) = (range.start().get(), range.last().get());
        (start..=last).for_each(|page| look(page, PageSize::Base));
        look(start, PageSize::Huge);
        if last / HUGE_PAGES != start / HUGE_PAGES {
            look(last, PageSize::Huge);
        }
    }
    /// For a checker: `pfn` was freed. Marks the translations that reach it, and calls `found` with
    /// the address space of each.
    pub fn mark_freed(&mut self, pfn: Pfn, mut found: impl FnMut(Asid)) {
        let Some(entries) = self.entries.as_mut().filter(|_| self.live > 0) else { return };
        for (slot, entry) in entries.iter_mut().enumerate().filter(|(_, entry)| entry.key != 0) {
            let size = size_of_slot(slot);
            let first = entry.translation(size).pfn.index();
            if (first..first + size.pages() as usize).contains(&pfn.index()) {
                entry.value |= FREED;
                found(entry.tag(size).0);
            }
        }
    }
    /// The number of translations.
    pub fn len(&self) -> usize {
        self.live
    }
    /// Whether there are no translations.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const SPACE: Asid = Asid::new(7);

    fn base(pfn: usize) -> Translation {
        Translation { pfn: Pfn::new(pfn), size: PageSize::Base, writable: true, dirty: false }
    }
    fn range(start: u64, pages: u64) -> Option<VmaRange> {
        VmaRange::with_pages(Vpn::new(start), pages)
    }
    fn frame(tlb: &SoftTlb, page: u64) -> Option<usize> {
        let found = tlb.lookup(SPACE, Vpn::new(page))?;
        Some(found.translation.frame(Vpn::new(page)).index())
    }

    #[test]
    fn translations_are_found_by_space_and_page_until_they_are_flushed() {
        let mut tlb = SoftTlb::default();
        assert_eq!(tlb.fill(SPACE, Vpn::new(5), base(50)), None);
        assert_eq!(tlb.fill(Asid::new(8), Vpn::new(5), base(51)), None);
        assert_eq!(tlb.fill(SPACE, Vpn::new(5 + 64), base(52)), None);
        assert_eq!((frame(&tlb, 5), frame(&tlb, 69), frame(&tlb, 6)), (Some(50), Some(52), None));
        let mut dropped = 0;
        tlb.flush(SPACE, range(4, 3), |_| dropped += 1);
        assert_eq!((frame(&tlb, 5), frame(&tlb, 69), dropped), (None, Some(52), 1));
        tlb.flush(SPACE, None, |_| dropped += 1);
        assert_eq!((tlb.len(), dropped), (1, 2));
        assert!(tlb.lookup(Asid::new(8), Vpn::new(5)).is_some());
    }

    #[test]
    fn a_huge_translation_covers_512_pages_and_any_of_them_flushes_it() {
        let mut tlb = SoftTlb::default();
        let huge = Translation { size: PageSize::Huge, ..base(1024) };
        tlb.fill(SPACE, Vpn::new(512 * 3 + 9), huge);
        assert_eq!((frame(&tlb, 512 * 3), frame(&tlb, 512 * 4 - 1)), (Some(1024), Some(1535)));
        tlb.flush(SPACE, range(512 * 4, 1), |_| panic!("another page"));
        tlb.flush(SPACE, range(512 * 4 - 1, 1), |_| {});
        assert!(tlb.is_empty() && frame(&tlb, 512 * 3).is_none());
    }

    #[test]
    fn a_flush_of_many_pages_forgets_those_and_no_others() {
        // So many pages that every entry is looked at, instead of every page.
        let (start, pages) = (512 * 8 + 256, BASE_SETS as u64);
        let mut tlb = SoftTlb::default();
        let huge = |tlb: &mut SoftTlb, first, pfn| {
            let huge = Translation { size: PageSize::Huge, ..base(pfn) };
            tlb.fill(SPACE, Vpn::new(first), huge);
        };
        huge(&mut tlb, start - 256, 512);
        huge(&mut tlb, start - 256 - 512, 1024);
        let last = start + pages - 1;
        let (inside, outside) = ([start, start + 10, last], [start - 257 - 512, last + 1]);
        for page in inside.into_iter().chain(outside) {
            assert!(!(512 * 7..512 * 9).contains(&page) || page >= start);
            tlb.fill(SPACE, Vpn::new(page), base(page as usize));
        }
        tlb.fill(Asid::new(8), Vpn::new(start), base(1));
        let mut dropped = Vec::new();
        tlb.flush(SPACE, range(start, pages), |gone| dropped.push(gone.pfn.index()));
        dropped.sort_unstable();
        let mut wanted: Vec<usize> = inside.iter().map(|&page| page as usize).collect();
        wanted.insert(0, 512);
        assert_eq!(dropped, wanted);
        assert_eq!(outside.map(|page| frame(&tlb, page)), outside.map(|page| Some(page as usize)));
        assert_eq!(frame(&tlb, start - 256 - 512), Some(1024), "the huge page before");
        assert_eq!(frame(&tlb, start), None);
        assert!(tlb.lookup(Asid::new(8), Vpn::new(start)).is_some());
        assert_eq!(tlb.len(), 4);
    }

    #[test]
    fn a_full_set_gives_up_one_entry_and_a_known_page_is_replaced() {
        let mut tlb = SoftTlb::default();
        let pages = |way: u64| Vpn::new(way * BASE_SETS as u64);
        (0..WAYS as u64).for_each(|way| assert!(tlb.fill(SPACE, pages(way), base(1)).is_none()));
        assert_eq!(tlb.fill(SPACE, pages(1), base(2)), Some(base(1)));
        assert!(tlb.fill(SPACE, pages(9), base(3)).is_some());
        assert_eq!(tlb.len(), WAYS);
        assert!(tlb.lookup(SPACE, pages(9)).is_some());
    }

    #[test]
    fn a_freed_frame_is_marked_wherever_it_is_mapped() {
        let mut tlb = SoftTlb::default();
        tlb.fill(SPACE, Vpn::new(512), Translation { size: PageSize::Huge, ..base(512) });
        tlb.fill(SPACE, Vpn::new(3), base(600));
        let mut whose = 0;
        tlb.mark_freed(Pfn::new(600), |asid| whose += asid.index());
        assert_eq!(whose, 2 * SPACE.index());
        assert!(tlb.lookup(SPACE, Vpn::new(3)).is_some_and(|found| found.freed));
    }
}
