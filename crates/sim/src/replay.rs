//! Functions for players of recorded operations, in addition to [`mmscale_arch::Machine`]:
//! instructions, stores that are waited for later, whether a lock was found taken, and names of
//! paths and locks.

use crate::atomics::{SimAtomic, Word};
use crate::engine::context::with;
use crate::irq::{at_turn, at_turn_if_any, charge, charge_of};
use crate::machine::Sim;
use crate::record::names::Names;
use crate::speed::Pace;
use mmscale_arch::Op;

impl Sim {
    /// Gives names to call paths and locks that only the program knows. Called once, while the
    /// machine boots.
    pub fn set_names(names: Names) {
        with(|engine| engine.stats.set_names(names));
    }
    /// The running task or interrupt is on the call path `number` of [`Names`] now. Costs no time.
    pub fn go_to_path(number: u32) {
        with(|engine| {
            let path = engine.stats.named_path(number);
            if engine.cpu().path != path {
                engine.go_to_path(path);
            }
        });
    }
    /// The running CPU executes `count` instructions of a recorded operation. Their time follows
    /// the CPU's clock, and has the jitter of an operation.
    pub fn execute(count: u32, pace: Pace) {
        charge_of(|engine| engine.instructions_ps(count, pace));
    }
    /// The running CPU clears so many bytes of memory, with the cost of pages and the bandwidth of
    /// its node.
    pub fn clear_bytes(bytes: u32) {
        charge(at_turn(|engine| engine.move_bytes(Op::ClearPage, bytes.into())));
    }
    /// The running CPU copies so many bytes, as it clears them.
    pub fn copy_bytes(bytes: u32) {
        charge(at_turn(|engine| engine.move_bytes(Op::CopyPage, bytes.into())));
    }
    /// The running CPU stalls until `until_ps`, in the unit of
    /// [`wait_clock`](mmscale_arch::Machine::wait_clock); not at all if that has passed.
    pub fn stall_until(until_ps: u64) {
        charge(with(|engine| until_ps.saturating_sub(engine.cpu().clock)));
    }
    /// The running CPU begins (`true`) or ends the hold of a recorded lock of the class whose holds
    /// the run scales ([`HoldScale`](crate::HoldScale)): the machine does not know its class.
    pub fn scale_hold(begins: bool) {
        with(|engine| {
            let scaled = &mut engine.cpu().scaled;
            *scaled = if begins { *scaled + 1 } else { scaled.saturating_sub(1) };
        });
    }
    /// Whether the running CPU's last acquisition of a spin lock, a semaphore or a mutex found it
    /// taken. Costs no time and waits for no turn.
    pub fn found_taken() -> bool {
        with(|engine| engine.cpu().found_taken)
    }
    /// Returns how many lines the running CPU has got from other CPUs since the start, those of
    /// locks that it waited for and of [`SimAtomic::store_later`] not included, and the time for
    /// which it waited for them, in ps. Costs no time and waits for no turn.
    pub fn fetched() -> (u64, u64) {
        with(|engine| engine.cpu().fetched)
    }
}

impl<T: Word> SimAtomic<T> {
    /// Stores a value without waiting for the line, as a processor does that has a store buffer.
    /// The line moves to this CPU now, and is busy until it is there. Returns that time, in the
    /// unit of [`wait_clock`](mmscale_arch::Machine::wait_clock): the caller stalls where the
    /// processor would wait for the store ([`Sim::stall_until`]).
    pub fn store_later(&self, value: T) -> u64 {
        let done = at_turn_if_any(self.near(), |engine| {
            self.set(value);
            if engine.quiet { 0 } else { engine.store_later(self.line()) }
        });
        done.unwrap_or_else(|| {
            self.set(value);
            0
        })
    }
}
