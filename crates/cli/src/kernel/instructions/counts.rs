//! Instructions of the operations that a profile has, from those of functions and holds.
//!
//! A function or a hold contains several operations of the model. Each row below says which whole
//! it is from, and which others are taken off, so that the operations of a fault, of an unmap, of
//! a refill and of a drain together have the instructions that the kernel executes.

use mmscale_calibrate::{Number, Op, Section, instructions_key};
use mmscale_vm::instructions::{Function, Hold, Summary};

use super::document::Document;

/// Versions from 6.1 to 7.3, with and without checks of lists, differ by up to this factor.
const SPREAD: f64 = 1.6;

/// An operation's instructions, and what they are.
pub(super) struct Count {
    pub(super) op: Op,
    pub(super) instructions: f64,
    what: &'static str,
}

/// The summaries of the scripts that the counts are from.
struct Counted<'a> {
    touch: &'a Summary,
    single: &'a Summary,
    bulk: &'a Summary,
}

impl<'a> Counted<'a> {
    fn of(document: &'a Document) -> Option<Self> {
        let of = |name: &str| {
            let script = document.scripts.iter().find(|script| script.name == name)?;
            script.operations.first()
        };
        Some(Self { touch: of("touch")?, single: of("single")?, bulk: of("bulk")? })
    }
}

/// Returns the operations whose functions an image has.
pub(super) fn counts(document: &Document) -> Vec<Count> {
    let Some(from) = Counted::of(document) else { return vec![] };
    OPS.iter()
        .filter_map(|&(op, instructions, what)| {
            let instructions = instructions(&from).filter(|&count| count >= 1.0)?;
            Some(Count { op, instructions: instructions.round(), what })
        })
        .collect()
}

/// Returns the counts as numbers of a profile.
pub(super) fn section(document: &Document) -> Section {
    let release = document.images.first().map_or("", |side| side.release.as_str());
    let number = |count: &Count| Number {
        value: count.instructions,
        range: [(count.instructions / SPREAD).floor(), (count.instructions * SPREAD).ceil()],
        source: format!("measured in an emulator, Linux {release}: {}", count.what),
    };
    counts(document).iter().map(|count| (instructions_key(count.op), number(count))).collect()
}

/// Names of the same function in several versions, the newest first, are separated by `|`.
type Names = &'static str;

fn has(names: Names, name: &str) -> bool {
    names.split('|').any(|one| one == name)
}

/// The first of these functions that the kernel has.
fn function(of: &Summary, names: Names) -> Option<&Function> {
    let named = |name: &str| of.functions.iter().find(|function| function.name == name);
    names.split('|').find_map(named)
}

/// Instructions of a call, in the median.
fn call(of: &Summary, names: Names) -> Option<f64> {
    function(of, names).map(|function| function.call.median)
}

/// Holds that these functions begin, called by `outer`; by any if it is empty.
fn holds(of: &Summary, names: Names, outer: Names) -> impl Iterator<Item = &Hold> {
    let is_from = move |hold: &&Hold| outer.is_empty() || has(outer, &hold.outer);
    of.holds.iter().filter(move |hold| has(names, &hold.caller)).filter(is_from)
}

/// Instructions in these holds, an operation of the script.
fn held(of: &Summary, names: Names, outer: Names) -> Option<f64> {
    let sum: f64 = holds(of, names, outer).map(|hold| hold.instructions).sum();
    (sum > 0.0).then_some(sum)
}

/// Instructions of one of these holds, in the median of the most frequent place.
fn hold(of: &Summary, names: Names, outer: Names) -> Option<f64> {
    let most = holds(of, names, outer).max_by(|a, b| a.holds.total_cmp(&b.holds))?;
    Some(most.hold.median)
}

const FREE_ONE: Names = "__free_one_page";
const ALLOC: Names = "__alloc_frozen_pages_noprof|__alloc_pages_noprof|__alloc_pages";
const FROM_LISTS: Names = "get_page_from_freelist";
const LRUVEC: Names = "folio_lruvec_lock_irqsave";
const STATS: Names = "mod_lruvec_state|__mod_lruvec_state";
const STATS_OF_NODE: Names = "mod_node_page_state|__mod_node_page_state";
const COMMIT: Names = "free_frozen_page_commit|free_unref_page_commit";
const FREES: Names = "__page_cache_release|release_pages";
const CHARGE: Names = "__mem_cgroup_charge";
const PTE_LOCK: Names =
    "pte_offset_map_lock|__pte_offset_map_lock|__handle_mm_fault|unmap_page_range";
const FAULTS: Names = "do_anonymous_page|handle_mm_fault";
const UNMAPS: Names = "__zap_vma_range|unmap_page_range|unmap_vmas";
const LRU_BATCH: Names = "folio_add_lru_vma|lru_cache_add_inactive_or_unevictable";

/// One merge of two buddies: a step, and one of them taken off its list. Where a block is divided
/// into pages, and all are freed, each free merges once in the mean.
fn merge(from: &Counted<'_>) -> Option<f64> {
    let free = function(from.bulk, FREE_ONE)?;
    Some(free.instructions / free.calls - free.call.min)
}

/// A link in a free list, and its removal: two thirds of a merge.
fn link(from: &Counted<'_>) -> Option<f64> {
    Some(merge(from)? * 2.0 / 3.0)
}

fn pcp_take(from: &Counted<'_>) -> Option<f64> {
    hold(from.touch, FROM_LISTS, "")
}

fn lru_link(from: &Counted<'_>) -> Option<f64> {
    Some(held(from.touch, LRUVEC, "")? / 2.0 - call(from.touch, STATS)?)
}

/// The page-table lock in a fault that drains no batch.
fn fault_hold(from: &Counted<'_>) -> Option<f64> {
    hold(from.touch, PTE_LOCK, FAULTS)
}

/// An operation, its instructions, and what they are.
type Row = (Op, fn(&Counted<'_>) -> Option<f64>, &'static str);

const OPS: &[Row] = &[
    (
        Op::AllocEntry,
        |from| Some(call(from.touch, ALLOC)? - call(from.touch, FROM_LISTS)?),
        "a call of __alloc_pages less that of get_page_from_freelist",
    ),
    (Op::PcpTake, pcp_take, "a hold of the page cache's lock in get_page_from_freelist"),
    (
        Op::PagePrep,
        |from| {
            let alloc = call(from.touch, FROM_LISTS)? - pcp_take(from)?;
            let free = function(from.touch, "tlb_finish_mmu")?.instructions;
            let locked = held(from.touch, LRUVEC, FREES)? + call(from.touch, COMMIT)?;
            Some((alloc + free - locked) / 2.0)
        },
        "half of get_page_from_freelist and tlb_finish_mmu, a page, less their holds of locks",
    ),
    (Op::PcpPut, |from| call(from.touch, COMMIT), "a call of free_unref_page_commit"),
    (
        Op::RefillPage,
        |from| {
            let hold = held(from.bulk, "__rmqueue_pcplist|rmqueue_bulk", "")?;
            Some(hold - merge(from)? - link(from)?)
        },
        "the hold of zone->lock of a refill, a page, less buddy_take, buddy_put and buddy_step",
    ),
    (
        Op::DrainPage,
        |from| Some(held(from.bulk, "free_pcppages_bulk", "")? - merge(from)? - link(from)?),
        "the hold of zone->lock of a drain, a page, less buddy_take, buddy_put and buddy_step",
    ),
    (Op::BuddyTake, link, "two thirds of a merge in __free_one_page: its mean less its least"),
    (Op::BuddyPut, link, "two thirds of a merge in __free_one_page: its mean less its least"),
    (
        Op::BuddyStep,
        |from| Some(merge(from)? / 3.0),
        "a third of a merge in __free_one_page: its mean less its least",
    ),
    (Op::LruBatch, |from| call(from.touch, LRU_BATCH), "a call of folio_add_lru_vma"),
    (
        Op::LruLink,
        lru_link,
        "a hold of the LRU lock, a folio, half of addition and removal, less the statistics",
    ),
    (
        Op::LruDetach,
        |from| Some(lru_link(from)? / 2.0),
        "half of lru_link, the other half being the size and the counters",
    ),
    (
        Op::GroupCharge,
        |from| Some((call(from.touch, CHARGE)? + call(from.touch, "uncharge_folio")?) / 2.0),
        "half of a call of __mem_cgroup_charge and one of uncharge_folio",
    ),
    (
        Op::StatUpdate,
        |from| Some(call(from.touch, STATS)? - call(from.touch, STATS_OF_NODE)?),
        "a call of __mod_lruvec_state less that of __mod_node_page_state",
    ),
    (
        Op::MapPage,
        |from| {
            let others = call(from.touch, LRU_BATCH)? + call(from.touch, STATS)?;
            Some(fault_hold(from)? - others)
        },
        "the hold of the page-table lock in a fault, less lru_batch and the statistics",
    ),
    (
        Op::UnmapPage,
        |from| Some(held(from.touch, PTE_LOCK, UNMAPS)? - call(from.touch, STATS)?),
        "the hold of the page-table lock in an unmap, a page, less the statistics",
    ),
    (Op::VmaFind, |from| call(from.touch, "mas_walk"), "a call of mas_walk"),
    (
        Op::VmaEdit,
        |from| Some(hold(from.single, "vm_mmap_pgoff", "")? - call(from.touch, "mas_walk")?),
        "the hold of mmap_lock in mmap, less vma_find",
    ),
    (
        Op::FaultHandle,
        |from| {
            let parts = call(from.touch, ALLOC)? + call(from.touch, CHARGE)? + fault_hold(from)?;
            Some(call(from.touch, "handle_mm_fault")? - parts)
        },
        "a call of handle_mm_fault less allocation, charge and the hold of the page-table lock",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_vm::instructions::Spread;

    fn called(name: &str, median: f64) -> Function {
        Function {
            name: name.to_owned(),
            address: String::new(),
            calls: 1.0,
            instructions: median + 2.0,
            own: 1.0,
            locked: 0.0,
            call: Spread { min: median - 10.0, median, max: median + 100.0 },
        }
    }

    fn place(caller: &str, outer: &str, median: f64) -> Hold {
        Hold {
            acquire: "_raw_spin_lock".to_owned(),
            caller: caller.to_owned(),
            outer: outer.to_owned(),
            holds: 1.0,
            instructions: median + 4.0,
            locked: 0.0,
            hold: Spread { min: median, median, max: median },
            locks: 1,
            names: vec![],
        }
    }

    #[test]
    fn operations_of_a_fault_have_the_instructions_of_its_functions() {
        let touch = Summary {
            functions: [
                ("handle_mm_fault", 1999.0),
                ("__alloc_pages_noprof", 481.0),
                ("get_page_from_freelist", 370.0),
                ("__mem_cgroup_charge", 66.0),
                ("__mod_lruvec_state", 107.0),
                ("folio_add_lru_vma", 56.0),
            ]
            .map(|(name, median)| called(name, median))
            .to_vec(),
            holds: vec![
                place("get_page_from_freelist", "__alloc_pages_noprof", 143.0),
                place("__pte_offset_map_lock", "do_anonymous_page", 384.0),
                place("__pte_offset_map_lock", "unmap_page_range", 500.0),
            ],
            ..Summary::default()
        };
        let (single, bulk) = (Summary::default(), Summary::default());
        let from = Counted { touch: &touch, single: &single, bulk: &bulk };
        let of = |wanted| OPS.iter().find(|(op, ..)| *op == wanted).unwrap().1(&from);
        assert_eq!(of(Op::FaultHandle), Some(1999.0 - 481.0 - 66.0 - 384.0));
        assert_eq!(of(Op::MapPage), Some(384.0 - 56.0 - 107.0));
        assert_eq!(of(Op::UnmapPage), Some(504.0 - 107.0));
        assert_eq!(of(Op::AllocEntry), Some(111.0));
        assert_eq!((of(Op::PcpTake), of(Op::LruLink)), (Some(143.0), None));
    }

    #[test]
    fn a_drain_has_what_its_hold_has_beyond_the_free_lists() {
        let bulk = Summary {
            functions: vec![called("__free_one_page", 168.0)],
            holds: vec![
                place("free_pcppages_bulk", "free_unref_page_commit", 200.0),
                place("free_pcppages_bulk", "decay_pcp_high", 100.0),
                place("rmqueue_bulk", "get_page_from_freelist", 202.0),
            ],
            ..Summary::default()
        };
        let (touch, single) = (Summary::default(), Summary::default());
        let from = Counted { touch: &touch, single: &single, bulk: &bulk };
        let of = |wanted| OPS.iter().find(|(op, ..)| *op == wanted).unwrap().1(&from).unwrap();
        // 170 in the mean, 158 at least: a merge has 12.
        assert_eq!((of(Op::BuddyTake), of(Op::BuddyPut), of(Op::BuddyStep)), (8.0, 8.0, 4.0));
        assert_eq!((of(Op::DrainPage), of(Op::RefillPage)), (308.0 - 20.0, 206.0 - 20.0));
    }
}
