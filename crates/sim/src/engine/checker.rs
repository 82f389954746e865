//! The state of the checkers.

use crate::config::Checks;
use crate::engine::ledger::Ledger;
use crate::outcome::Violation;
use crate::record::stats::CLASSES;
use crate::topology::NO_CPU;

/// The most violations that are kept.
const MAX_VIOLATIONS: usize = 64;

/// Locks that a CPU holds, by class.
#[derive(Clone, Copy, Default)]
pub(crate) struct HeldLocks {
    pub(crate) count: [u8; CLASSES],
    pub(crate) mask: u32,
}

/// The state of the checkers.
pub(crate) struct Checker {
    pub(crate) on: bool,
    pub(crate) held: Vec<HeldLocks>,
    /// Classes waited for in an interrupt, and classes taken with interrupts on.
    pub(crate) in_irq: u32,
    pub(crate) irqs_on: u32,
    /// The owner of each contended lock, by lock id; for messages.
    pub(crate) owners: Vec<u16>,
    /// Frames and counters, as the tracepoints describe them.
    pub(crate) ledger: Ledger,
    violations: Vec<Violation>,
}

impl Checker {
    pub(crate) fn new(checks: Checks, cpus: usize) -> Self {
        Self {
            on: checks == Checks::On,
            held: vec![HeldLocks::default(); cpus],
            in_irq: 0,
            irqs_on: 0,
            owners: vec![NO_CPU],
            ledger: Ledger::default(),
            violations: Vec::new(),
        }
    }
    pub(crate) fn new_lock_id(&mut self) -> u32 {
        self.owners.push(NO_CPU);
        self.owners.len() as u32 - 1
    }
    pub(crate) fn lock_owner(&mut self, id: u32, owner: u16) {
        if let Some(slot) = self.owners.get_mut(id as usize) {
            *slot = owner;
        }
    }
    /// Keeps a violation, once for each rule, message and call path.
    pub(crate) fn keep(&mut self, new: Violation) {
        let same = |old: &Violation| {
            (old.rule, &old.what, &old.location.path) == (new.rule, &new.what, &new.location.path)
        };
        if self.violations.len() < MAX_VIOLATIONS && !self.violations.iter().any(same) {
            self.violations.push(new);
        }
    }
    pub(crate) fn take_violations(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.violations)
    }
}
