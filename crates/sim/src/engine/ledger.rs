//! A record of the tracepoints: which frames are allocated, and the values of the counters' bytes.
//!
//! It is independent of the memory manager. Recording waits for no turn: the owner of a frame or of
//! a byte obtained it by an operation on shared state, so the host runs the events of one frame,
//! and of one byte, in their order.

use crate::outcome::Rule;
use mmscale_arch::{CounterEvent, CpuId, ExitEvent, Order, PageEvent, PcpEvent, Pfn, Trace, ZapBy};
use std::collections::{BTreeMap, BTreeSet};

/// Frames whose bits are kept together.
const GROUP: usize = 4096;
const WORDS: usize = GROUP / 64;

/// One bit for each frame of a group.
#[derive(Clone)]
struct Group {
    held: [u64; WORDS],
    /// Allocated at least once.
    seen: [u64; WORDS],
}

/// A counter's byte: its CPU, its zone or node, its counter.
type Byte = (CpuId, u16, u8);

/// The state that the tracepoints describe.
#[derive(Default)]
pub(crate) struct Ledger {
    /// By groups of frames; absent until a frame of the group is allocated.
    groups: Vec<Option<Box<Group>>>,
    /// Bytes that are not zero.
    bytes: BTreeMap<Byte, i8>,
    /// Pages in page caches, by CPU and zone; zeros are left out.
    cached: BTreeMap<(CpuId, u16), u32>,
    /// Claimed page tables of dying address spaces, by address space.
    claimed: BTreeSet<(usize, u32)>,
}

fn pages(first: Pfn, order: Order) -> impl Iterator<Item = usize> {
    first.index()..first.index() + order.pages()
}

impl Ledger {
    fn group(&mut self, index: usize) -> &mut Group {
        let at = index / GROUP;
        if at >= self.groups.len() {
            self.groups.resize(at + 1, None);
        }
        self.groups[at]
            .get_or_insert_with(|| Box::new(Group { held: [0; WORDS], seen: [0; WORDS] }))
    }
    /// Allocates a block; returns the first of its frames that is allocated already.
    fn allocate(&mut self, first: Pfn, order: Order) -> Option<usize> {
        let mut taken = None;
        for index in pages(first, order) {
            let group = self.group(index);
            let (word, bit) = (index % GROUP / 64, 1 << (index % 64));
            if group.held[word] & bit != 0 {
                taken = taken.or(Some(index));
            }
            group.held[word] |= bit;
            group.seen[word] |= bit;
        }
        taken
    }
    /// Frees a block; returns the first of its frames that is not allocated.
    fn free(&mut self, first: Pfn, order: Order) -> Option<usize> {
        let mut free = None;
        for index in pages(first, order) {
            let group = self.group(index);
            let (word, bit) = (index % GROUP / 64, 1 << (index % 64));
            if group.held[word] & bit == 0 {
                free = free.or(Some(index));
            }
            group.held[word] &= !bit;
        }
        free
    }
    /// Returns the first frame of a block that was freed and not allocated since.
    pub(crate) fn freed(&self, first: Pfn, order: Order) -> Option<usize> {
        pages(first, order).find(|index| {
            let group = self.groups.get(index / GROUP).and_then(Option::as_ref);
            let (word, bit) = (index % GROUP / 64, 1 << (index % 64));
            group.is_some_and(|group| group.seen[word] & !group.held[word] & bit != 0)
        })
    }
    /// Records a byte's new value; returns the old one.
    fn set_byte(&mut self, byte: Byte, new: i8) -> i8 {
        let old = if new == 0 { self.bytes.remove(&byte) } else { self.bytes.insert(byte, new) };
        old.unwrap_or(0)
    }
    fn set_cached(&mut self, cache: (CpuId, u16), pages: u32) {
        if pages == 0 {
            self.cached.remove(&cache);
        } else {
            self.cached.insert(cache, pages);
        }
    }
    /// Records a tracepoint; returns the rule that it breaks, if any.
    pub(crate) fn record(&mut self, event: &Trace) -> Option<(Rule, String)> {
        match *event {
            Trace::Page(PageEvent::Alloc { pfn, order }) => {
                let frame = self.allocate(pfn, order)?;
                let what = format!("allocates frame {frame}, which is allocated already");
                Some((Rule::FrameState, what))
            }
            Trace::Page(PageEvent::Free { pfn, order }) => {
                let frame = self.free(pfn, order)?;
                Some((Rule::FrameState, format!("frees frame {frame}, which is not allocated")))
            }
            Trace::Pcp(PcpEvent::Count { cpu, zone, count, .. }) => {
                self.set_cached((cpu, zone), count);
                None
            }
            Trace::Exit(ExitEvent::TableZap { asid, unit, by: ZapBy::Claim }) => {
                if self.claimed.insert((asid.index(), unit)) {
                    return None;
                }
                let what = format!("claims table {unit} of address space {}", asid.index());
                Some((Rule::ClaimedTwice, what + ", which is claimed already"))
            }
            Trace::Exit(ExitEvent::ClaimsOpen { asid }) => {
                self.claimed.retain(|&(of, _)| of != asid.index());
                None
            }
            Trace::Counter(CounterEvent::Delta {
                cpu, domain, item, old, new, threshold, ..
            }) => {
                let known = self.set_byte((cpu, domain, item), new);
                let wrong = if known != old {
                    format!("changed without a tracepoint: it was {known} and is {old}")
                } else if new.unsigned_abs() > threshold {
                    format!("is {new}, past its threshold {threshold}")
                } else {
                    return None;
                };
                let which = format!("{cpu}'s byte of counter {item} of {}", domain_name(domain));
                Some((Rule::CounterDrift, format!("{which} {wrong}")))
            }
            _ => None,
        }
    }
    /// Describes what `cpu` has in its counter bytes and its page caches.
    pub(crate) fn left_by(&self, cpu: CpuId) -> Vec<String> {
        let bytes = self.bytes.iter().filter(|((whose, ..), _)| *whose == cpu);
        let bytes = bytes.map(|((_, domain, item), count)| {
            format!("{count} in counter {item} of {}", domain_name(*domain))
        });
        let caches = self.cached.iter().filter(|((whose, _), _)| *whose == cpu);
        let caches =
            caches.map(|((_, zone), pages)| format!("{pages} pages cached of zone {zone}"));
        bytes.chain(caches).collect()
    }
}

fn domain_name(domain: u16) -> String {
    let (kind, number) = if domain & 0x8000 == 0 { ("zone", domain) } else { ("node", domain) };
    format!("{kind} {}", number & 0x7fff)
}
