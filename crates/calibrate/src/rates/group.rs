//! Groups of costs that are fitted together, and the numbers of a profile that belong to each.

use mmscale_arch::Op;
use mmscale_sim::profile::{Basis, Merged, Number, op_key};

/// Costs that have one factor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Group {
    /// Entry to and exit from the kernel.
    Entry,
    /// VMAs and their trees.
    Vma,
    /// Faults, page tables, page allocation, LRU lists.
    Pages,
    /// Fork and exit without their memory.
    Tasks,
    /// Clearing and copying pages. A CPU waits for memory there, so that neither its clock nor the
    /// common factor changes their cost.
    Clear,
    /// All other operations. They have the common factor.
    Rest,
}

impl Group {
    /// All groups.
    pub const ALL: [Self; 6] =
        [Self::Entry, Self::Vma, Self::Pages, Self::Tasks, Self::Clear, Self::Rest];

    /// Returns what the group contains, in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Entry => "kernel entry and exit",
            Self::Vma => "VMAs",
            Self::Pages => "faults, page tables, page allocation, LRU",
            Self::Tasks => "fork and exit without their memory",
            Self::Clear => "clearing and copying pages",
            Self::Rest => "all other operations",
        }
    }

    /// Returns the group of an operation.
    pub(super) const fn of(op: Op) -> Self {
        match op {
            Op::Syscall | Op::FaultEntry => Self::Entry,
            Op::VmaFind | Op::VmaEdit | Op::VmaCopy | Op::RmapLink => Self::Vma,
            Op::AllocEntry
            | Op::PcpTake
            | Op::PagePrep
            | Op::PageCheck
            | Op::PageTail
            | Op::PcpPut
            | Op::RefillPage
            | Op::DrainPage
            | Op::BuddyTake
            | Op::BuddyPut
            | Op::BuddyStep
            | Op::CounterFold
            | Op::LruBatch
            | Op::LruLink
            | Op::LruDetach
            | Op::GroupCharge
            | Op::StatUpdate
            | Op::PercpuAdd
            | Op::TableWalk
            | Op::PteSet
            | Op::PteScan
            | Op::PteClear
            | Op::MapPage
            | Op::UnmapPage
            | Op::TlbFlushPage
            | Op::TlbFlushAll
            | Op::FaultHandle => Self::Pages,
            Op::PidEdit
            | Op::TaskLink
            | Op::SignalEdit
            | Op::MmSwitch
            | Op::PercpuPlace
            | Op::PercpuZero
            | Op::PercpuStep => Self::Tasks,
            Op::ClearPage | Op::CopyPage => Self::Clear,
            _ => Self::Rest,
        }
    }

    /// Returns the place of the group in [`Group::ALL`].
    pub(super) const fn place(self) -> usize {
        self as usize
    }

    /// Returns whether the costs are work of a CPU, which follows the common factor.
    pub(super) const fn is_work(self) -> bool {
        !matches!(self, Self::Clear)
    }
}

/// A factor for each group, indexed as in [`Group::ALL`].
pub(super) type Factors = [f64; Group::ALL.len()];

/// Whether rates decide the factor of a group, indexed as in [`Group::ALL`].
pub(super) type Decided = [bool; Group::ALL.len()];

/// A number that is fitted.
pub(super) struct Fitted {
    pub(super) group: Group,
    pub(super) section: &'static str,
    pub(super) key: String,
    pub(super) number: Number,
}

/// Mitigations at each entry: a part of the cost of [`Group::Entry`].
const EXTRA: &str = "entry_extra_ns";

/// Returns the numbers of a profile that are fitted. A cost of 0 has no factor, and nothing uses a
/// number whose source says so.
pub(super) fn numbers(of: &Merged) -> impl Iterator<Item = Fitted> {
    let op = |&op: &Op| (Group::of(op), "ops", op_key(op), of.op(op));
    let extra = of.file.costs.get(EXTRA).cloned();
    let all = Op::ALL.iter().map(op).chain([(Group::Entry, "costs", EXTRA.to_owned(), extra)]);
    all.filter_map(|(group, section, key, number)| {
        let number = number?;
        let is_used = number.value > 0.0 && Basis::of(&number.source) != Ok(Basis::Unused);
        is_used.then_some(Fitted { group, section, key, number })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_sim::profile::open;

    #[test]
    fn every_operation_with_a_cost_is_fitted_and_no_line_or_lock() {
        let profile = open("x86-512").unwrap();
        let keys: Vec<String> = numbers(&profile).map(|fitted| fitted.key).collect();
        for op in Op::ALL {
            let key = op_key(op);
            assert_eq!(keys.contains(&key), profile.op(op).unwrap().value > 0.0, "{key}");
        }
        for key in ["atomic_ns", "lock_ns", "line_node_ns", "handoff_fixed_ns", "ipi_send_ns"] {
            assert!(!keys.iter().any(|fitted| fitted == key), "{key}");
        }
    }

    #[test]
    fn groups_are_in_the_order_of_their_list() {
        assert!(Group::ALL.iter().enumerate().all(|(place, group)| group.place() == place));
    }

    /// The clock of a CPU changes the time of all operations but those that wait for memory.
    #[test]
    fn what_the_clock_does_not_scale_is_not_work_of_a_cpu() {
        let memory = Op::ALL.iter().filter(|&&op| !Group::of(op).is_work());
        assert_eq!(memory.collect::<Vec<_>>(), [&Op::ClearPage, &Op::CopyPage]);
    }
}
