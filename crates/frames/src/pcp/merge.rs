//! Merging of buddies in a page cache, under its own lock only.

use super::Pcp;
use super::owned::orders;
use crate::frame::{FrameTable, MigrateType};
use mmscale_arch::{Access, Cpu, Op, Order};

impl Pcp {
    /// Merges buddies that are both in this cache and may merge, from the smallest order up. Does
    /// nothing if no such block was added since the last call.
    ///
    /// Both buddies are of one pageblock, so both are on lists of one type. Whether a neighbour is
    /// cached and may merge changes only under the lock of the page cache that has it. All blocks
    /// of a pageblock that may merge are in one page cache, so the check is stable here.
    pub(crate) fn merge_owned<A: Cpu>(&mut self, frames: &FrameTable) {
        let Some(owned) = self.owned.first_mut() else { return };
        if !core::mem::take(&mut owned.unmerged) {
            return;
        }
        for order in orders().take_while(|&order| order < Order::PAGEBLOCK) {
            let Some(up) = order.up() else { continue };
            for list_type in MigrateType::ALL {
                let mut next = owned.list(order, list_type).first();
                while let Some(pfn) = next {
                    next = frames.next(pfn);
                    FrameTable::touch::<A>(pfn, Access::Read);
                    let word = frames.word(pfn);
                    if !word.may_merge() {
                        continue;
                    }
                    let buddy = pfn.buddy(order);
                    let both = frames.word(buddy).merges_at(order);
                    // If the buddy is not in this cache, another CPU may be writing to its record.
                    FrameTable::touch::<A>(buddy, if both { Access::Read } else { Access::Peek });
                    if !both {
                        continue;
                    }
                    if next == Some(buddy) {
                        next = frames.next(buddy);
                    }
                    A::work(Op::BuddyTake, 2);
                    A::work(Op::BuddyStep, 1);
                    A::work(Op::BuddyPut, 1);
                    owned.list(order, list_type).unlink::<A>(frames, pfn);
                    owned.list(order, list_type).unlink::<A>(frames, buddy);
                    let whole = pfn.min(buddy);
                    owned.list(up, list_type).push_front::<A>(frames, whole);
                    frames.set_word(whole, word.with_order(up));
                    frames.set_inside(pfn.max(buddy));
                }
            }
        }
    }
}
