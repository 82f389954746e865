//! The numbers of tasks, on which the CPUs of tasks depend that a script does not place.

use crate::ScriptNeeds;

/// How many tasks there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Number {
    /// As many as CPUs, or more.
    EachCpu,
    Always(u64),
    /// Neither.
    Other,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Processes at the top of the script.
    pub(super) groups: Number,
    /// These, and their threads.
    pub(super) tasks: Number,
}

/// Numbers of CPUs for which tasks are counted.
const CPUS: [usize; 3] = [16, 64, 1024];

impl Layout {
    /// Finds the numbers; `needs` has them for a number of CPUs.
    pub(super) fn of(needs: impl Fn(usize) -> ScriptNeeds) -> Self {
        let number = |of: fn(ScriptNeeds) -> u64| {
            let counted = CPUS.map(|cpus| (of(needs(cpus)), cpus as u64));
            if counted.iter().all(|(tasks, cpus)| tasks >= cpus) {
                return Number::EachCpu;
            }
            let [(first, _), ..] = counted;
            let same = counted.iter().all(|(tasks, _)| *tasks == first);
            if same { Number::Always(first) } else { Number::Other }
        };
        Self { groups: number(|needs| needs.groups), tasks: number(|needs| needs.standing) }
    }
}
