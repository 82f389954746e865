//! Checkers of the engine: rules for the code on the machine, checked outside that code.

use crate::engine::Engine;
use crate::outcome::{Failure, Location, Rule, Violation};
use crate::topology::NO_CPU;
use mmscale_arch::{CpuId, LockClass, Order, Pfn, Trace};

/// The bit of the class whose locks may nest.
const OTHER: u32 = 1 << LockClass::Other as u32;

impl Engine {
    /// Records a broken rule, once for each rule, message and call path.
    #[cold]
    pub(crate) fn broken(&mut self, rule: Rule, what: String) {
        let location = self.location();
        self.checker.keep(Violation { rule, what, location });
    }
    /// Checks the rules of lock order and of interrupt safety, before the running CPU takes a lock
    /// of `class` and may wait.
    #[inline]
    pub(crate) fn check_lock(&mut self, class: LockClass) {
        if !self.checker.on {
            return;
        }
        let held = self.checker.held[self.cpus.at()].mask & !OTHER;
        let wrong = if class == LockClass::Other { 0 } else { held >> class as u32 };
        if wrong != 0 {
            let inner = LockClass::ALL[held.ilog2() as usize];
            let (class, inner) = (class.name(), inner.name());
            self.broken(Rule::LockOrder, format!("takes a {class} lock under a {inner} lock"));
        }
        if self.cpus.running().in_irq {
            let bit = 1 << class as u32;
            self.check_contexts(self.checker.in_irq | bit, self.checker.irqs_on, class);
        } else {
            self.check_trylock(class);
        }
    }
    /// Checks a lock of `class` that the running CPU takes without waiting. The order of locks does
    /// not matter, and an interrupt that only tries does not wait for the task that it interrupted.
    /// But a task that got a lock by trying holds it like any other.
    #[inline]
    pub(crate) fn check_trylock(&mut self, class: LockClass) {
        let cpu = self.cpus.running();
        if self.checker.on && !cpu.in_irq && !cpu.irq_off {
            let bit = 1 << class as u32;
            self.check_contexts(self.checker.in_irq, self.checker.irqs_on | bit, class);
        }
    }
    /// Records the classes waited for in interrupts and those taken with interrupts on, after
    /// `class` was added to one of them.
    #[inline]
    fn check_contexts(&mut self, in_irq: u32, irqs_on: u32, class: LockClass) {
        if (in_irq, irqs_on) == (self.checker.in_irq, self.checker.irqs_on) {
            return;
        }
        (self.checker.in_irq, self.checker.irqs_on) = (in_irq, irqs_on);
        if in_irq & irqs_on & 1 << class as u32 != 0 {
            let what = "is waited for in interrupts and taken with interrupts on";
            self.broken(Rule::InterruptSafety, format!("a {} lock {what}", class.name()));
        }
        self.check_ranks(class);
    }
    /// Checks that interrupts wait for no lock that comes before one taken with interrupts on: it
    /// would be taken against the order as soon as such an interrupt came at that moment. `class`
    /// is new in one of the two sets.
    fn check_ranks(&mut self, class: LockClass) {
        let (in_irq, irqs_on) = (self.checker.in_irq, self.checker.irqs_on & !OTHER);
        if in_irq == 0 || irqs_on == 0 {
            return;
        }
        let waited = LockClass::ALL[in_irq.trailing_zeros() as usize];
        let held = LockClass::ALL[irqs_on.ilog2() as usize];
        if waited < held && (waited == class || held == class) {
            let (waited, held) = (waited.name(), held.name());
            let what = format!(
                "interrupts wait for a {waited} lock, and a {held} lock, which comes after it, is \
                 taken with interrupts on"
            );
            self.broken(Rule::InterruptSafety, what);
        }
    }
    /// Notes that the running CPU has taken a lock of `class`.
    #[inline]
    pub(crate) fn check_taken(&mut self, class: LockClass) {
        if self.checker.on {
            let held = &mut self.checker.held[self.cpus.at()];
            held.count[class as usize] += 1;
            held.mask |= 1 << class as u32;
        }
    }
    /// Checks that the running CPU holds the lock that it releases; returns whether it does.
    #[inline]
    pub(crate) fn check_unlock(&mut self, class: LockClass, owner: u16) -> bool {
        if usize::from(owner) != self.cpus.at() {
            self.broken_unlock(class, owner);
            return false;
        }
        if self.checker.on {
            let held = &mut self.checker.held[self.cpus.at()];
            let count = &mut held.count[class as usize];
            *count = count.saturating_sub(1);
            if *count == 0 {
                held.mask &= !(1 << class as u32);
            }
        }
        true
    }
    #[cold]
    fn broken_unlock(&mut self, class: LockClass, owner: u16) {
        let holder = match owner {
            NO_CPU => "no CPU".to_owned(),
            owner => CpuId::new(usize::from(owner)).to_string(),
        };
        let what = format!("releases a {} lock that {holder} holds", class.name());
        self.broken(Rule::UnlockOwner, what);
    }
    /// Checks that the current task may block.
    pub(crate) fn check_sleep(&mut self) {
        let cpu = self.cpu();
        let why = if cpu.in_irq {
            "in an interrupt"
        } else if cpu.irq_off {
            "with interrupts off"
        } else if cpu.preempt != 0 {
            "with preemption off"
        } else {
            return;
        };
        if self.checker.on {
            self.broken(Rule::SleepWhileAtomic, format!("parks {why}"));
        }
    }
    /// Checks an interrupt's end: it found the preemption count at `preempt`.
    pub(crate) fn check_interrupt_end(&mut self, preempt: u32) {
        let cpu = self.cpu();
        let (now, irq_off) = (cpu.preempt, cpu.irq_off);
        if self.checker.on && now != preempt {
            let what = format!("an interrupt leaves the preemption count at {now}, not {preempt}");
            self.broken(Rule::Balance, what);
        }
        if self.checker.on && !irq_off {
            self.broken(Rule::Balance, "an interrupt ends with interrupts on".to_owned());
        }
    }
    /// Checks that a task whose body has returned holds nothing.
    pub(crate) fn check_task_end(&mut self) {
        if self.quiet {
            return;
        }
        let cpu = self.cpu();
        let (preempt, irq_off) = (cpu.preempt, cpu.irq_off);
        cpu.preempt = 0;
        if self.checker.on && preempt != 0 {
            self.broken(Rule::Balance, format!("a task ends with a preemption count of {preempt}"));
        }
        if self.checker.on && irq_off {
            self.broken(Rule::Balance, "a task ends with interrupts off".to_owned());
        }
    }
    /// Checks that CPU `to` is online before it is interrupted; returns whether it is.
    pub(crate) fn check_ipi(&mut self, to: usize) -> bool {
        let there = self.cpus[to].wait != crate::cpu::WaitState::Offline;
        if !there && self.checker.on {
            let to = CpuId::new(to);
            self.broken(Rule::OfflineIpi, format!("sends an interrupt to {to}, which is offline"));
        }
        there
    }
    /// Passes a tracepoint to the ledger.
    #[inline]
    pub(crate) fn check_event(&mut self, event: &Trace) {
        if self.checker.on
            && !self.quiet
            && let Some((rule, what)) = self.checker.ledger.record(event)
        {
            self.broken(rule, what);
        }
    }
    /// Checks that a block whose bytes are used is allocated.
    pub(crate) fn check_use(&mut self, pfn: Pfn, order: Order) {
        if self.checker.on
            && !self.quiet
            && let Some(frame) = self.checker.ledger.freed(pfn, order)
        {
            self.broken(Rule::FrameState, format!("uses frame {frame}, which is free"));
        }
    }
    /// Checks what `cpu` leaves behind, after it went offline and other CPUs took over its state.
    pub(crate) fn check_gone(&mut self, cpu: CpuId) {
        let mut left = if self.quiet { Vec::new() } else { self.checker.ledger.left_by(cpu) };
        let requests = if self.quiet { 0 } else { self.requests_left(cpu) };
        if requests > 0 {
            left.push(format!("{requests} requests of the swap device"));
        }
        if self.checker.on && !left.is_empty() {
            let what = format!("{cpu} went offline and leaves {}", left.join(", "));
            self.broken(Rule::LeftBehind, what);
        }
    }
    /// Fails the run: the running CPU requests a lock of `class` that it holds itself.
    #[cold]
    pub(crate) fn fail_relock(&mut self, class: LockClass) {
        let location = self.location();
        let what = format!("{location}: takes a {} lock that this CPU holds already", class.name());
        self.fail(Failure::Deadlock { time_ns: location.time_ns, waiting: vec![what] });
    }
    /// Describes the lock that CPU `at` spins for.
    pub(crate) fn spinning_text(&self, at: usize, location: &Location) -> String {
        let waiter = &self.waiters[2 * at + usize::from(self.cpus[at].in_irq)];
        let class = waiter.class.name();
        let holder = match self.checker.owners.get(waiter.lock_id as usize) {
            Some(&owner) if owner != NO_CPU => CpuId::new(usize::from(owner)).to_string(),
            _ => "no CPU".to_owned(),
        };
        format!("{location}: spins for {class} lock {}, held by {holder}", waiter.lock_id)
    }
}
