//! One CPU's timers: two wheels, exact timers, sleepers, and the next event of its one-shot timer.

use super::sleepers::Sleepers;
use super::wheel::{SLOTS, Wheel, WheelPosition};
use super::{Expiry, Hz, OverIdle, TimerSlot};

/// The arming of a slot's timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Armed {
    /// Not pending.
    No,
    /// In the wheel of timers that wake an idle CPU.
    Standard(WheelPosition),
    /// In the wheel of timers that do not wake an idle CPU.
    Deferrable(WheelPosition),
    /// Exact to the nanosecond.
    Exact(Exact),
}

/// An exact timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Exact {
    pub(super) deadline_ns: u64,
    pub(super) over_idle: OverIdle,
    /// Its deadline passed while the CPU was idle and it was postponed: it is not postponed again.
    late: bool,
}

impl Exact {
    fn wakes(&self) -> bool {
        self.late || self.over_idle == OverIdle::Wake
    }
}

/// The timers of one CPU.
pub(super) struct Base {
    hz: Hz,
    standard: Wheel,
    deferrable: Wheel,
    slots: [Armed; SLOTS],
    /// Slots with an exact timer.
    exact: u16,
    pub(super) sleepers: Sleepers,
    /// The periodic tick runs: the CPU is busy.
    pub(super) ticking: bool,
    /// Time of the next tick, if `ticking`.
    next_tick_ns: u64,
    /// Time for which the one-shot is armed; `u64::MAX` if it is not.
    pub(super) programmed_ns: u64,
}

impl Base {
    pub(super) fn new(hz: Hz, now_ns: u64) -> Self {
        let clk = hz.jiffies(now_ns);
        Self {
            hz,
            standard: Wheel::new(hz.get(), clk),
            deferrable: Wheel::new(hz.get(), clk),
            slots: [Armed::No; SLOTS],
            exact: 0,
            sleepers: Sleepers::new(),
            ticking: false,
            next_tick_ns: u64::MAX,
            programmed_ns: u64::MAX,
        }
    }

    fn state(&mut self, slot: TimerSlot) -> &mut Armed {
        &mut self.slots[slot.index()]
    }

    /// Arms a wheel timer that is not pending.
    pub(super) fn arm_standard(&mut self, slot: TimerSlot, now: u64, expires: u64) {
        debug_assert_eq!(*self.state(slot), Armed::No);
        let place = self.standard.insert(slot.index(), now, expires);
        *self.state(slot) = Armed::Standard(place);
    }

    /// Arms a deferrable wheel timer that is not pending.
    pub(super) fn arm_deferrable(&mut self, slot: TimerSlot, now: u64, expires: u64) {
        debug_assert_eq!(*self.state(slot), Armed::No);
        let place = self.deferrable.insert(slot.index(), now, expires);
        *self.state(slot) = Armed::Deferrable(place);
    }

    /// Arms an exact timer that is not pending.
    pub(super) fn arm_exact(&mut self, slot: TimerSlot, deadline_ns: u64, over_idle: OverIdle) {
        debug_assert_eq!(*self.state(slot), Armed::No);
        *self.state(slot) = Armed::Exact(Exact { deadline_ns, over_idle, late: false });
        self.exact |= 1 << slot.index();
    }

    /// Disarms a timer; returns whether it was pending.
    pub(super) fn cancel(&mut self, slot: TimerSlot) -> bool {
        match core::mem::replace(self.state(slot), Armed::No) {
            Armed::No => return false,
            Armed::Standard(place) => self.standard.remove(slot.index(), place),
            Armed::Deferrable(place) => self.deferrable.remove(slot.index(), place),
            Armed::Exact(_) => self.exact &= !(1 << slot.index()),
        }
        true
    }

    /// Returns when the timer of `slot` is due, in ns.
    pub(super) fn due_ns(&mut self, slot: TimerSlot) -> Option<u64> {
        match *self.state(slot) {
            Armed::No => None,
            Armed::Standard(place) | Armed::Deferrable(place) => {
                Some(self.hz.edge_ns(place.expiry))
            }
            Armed::Exact(exact) => Some(exact.deadline_ns),
        }
    }

    fn exact_slots(&self) -> impl Iterator<Item = usize> + use<> {
        let exact = self.exact;
        (0..SLOTS).filter(move |slot| exact >> slot & 1 == 1)
    }

    /// Returns the deadline of the first relevant exact timer: of all if the CPU is busy, otherwise
    /// of those that wake it.
    fn next_exact_ns(&self) -> u64 {
        let deadline = |slot: usize| match self.slots[slot] {
            Armed::Exact(exact) if self.ticking || exact.wakes() => exact.deadline_ns,
            _ => u64::MAX,
        };
        self.exact_slots().map(deadline).min().unwrap_or(u64::MAX)
    }

    /// Returns when this CPU's one-shot must fire next.
    pub(super) fn next_event_ns(&self) -> u64 {
        let wheel = match self.standard.next_expiry() {
            _ if self.ticking => self.next_tick_ns,
            u64::MAX => u64::MAX,
            jiffy => self.hz.edge_ns(jiffy),
        };
        wheel.min(self.next_exact_ns()).min(self.sleepers.next_ns())
    }

    /// Starts the tick again, on the next jiffy edge. Postpones exact timers whose deadline passed
    /// during idle, once each, so that CPUs woken together do not run their late work together.
    pub(super) fn start_ticking(&mut self, now_ns: u64) {
        if self.ticking {
            return;
        }
        self.ticking = true;
        // If a timer woke the CPU, its tick is due now, not at the next edge.
        let jiffy = self.hz.jiffies(now_ns);
        let due = self.standard.next_expiry() <= jiffy;
        self.next_tick_ns = if due { now_ns } else { self.hz.edge_ns(jiffy + 1) };
        for slot in self.exact_slots() {
            if let Armed::Exact(exact) = &mut self.slots[slot]
                && let OverIdle::Defer { spread_ns } = exact.over_idle
                && exact.deadline_ns < now_ns
                && !exact.late
            {
                exact.late = true;
                exact.deadline_ns = now_ns + spread_ns;
            }
        }
    }

    /// Stops the tick. Timers that were postponed or are due fire first.
    pub(super) fn stop_ticking(&mut self, now_ns: u64) {
        self.ticking = false;
        for slot in self.exact_slots() {
            if let Armed::Exact(exact) = &mut self.slots[slot] {
                exact.late |= exact.deadline_ns <= now_ns;
                if exact.late {
                    exact.deadline_ns = exact.deadline_ns.min(now_ns);
                }
            }
        }
    }

    /// Returns whether a tick is due at `now_ns`, and sets the next one if so.
    pub(super) fn take_tick(&mut self, now_ns: u64) -> bool {
        if self.ticking && now_ns < self.next_tick_ns {
            return false;
        }
        if self.ticking {
            self.next_tick_ns = self.hz.edge_ns(self.hz.jiffies(now_ns) + 1);
        }
        true
    }

    /// Removes all timers that have expired by `now_ns` and returns a mask of their slots. Wheel
    /// timers expire only in a tick.
    pub(super) fn expire(&mut self, now_ns: u64, tick: bool) -> u16 {
        let mut expired = 0;
        if tick {
            let jiffy = self.hz.jiffies(now_ns);
            while let Some(slots) = self.standard.expire(jiffy) {
                expired |= slots;
            }
            while let Some(slots) = self.deferrable.expire(jiffy) {
                expired |= slots;
            }
        }
        for slot in self.exact_slots() {
            if let Armed::Exact(exact) = self.slots[slot]
                && exact.deadline_ns <= now_ns
            {
                self.exact &= !(1 << slot);
                expired |= 1 << slot;
            }
        }
        for slot in (0..SLOTS).filter(|slot| expired >> slot & 1 == 1) {
            self.slots[slot] = Armed::No;
        }
        expired
    }

    /// Removes one pending timer; returns it with the rest of its delay at `now_ns`.
    pub(super) fn take_any(&mut self, now_ns: u64) -> Option<(TimerSlot, Expiry)> {
        let index = self.slots.iter().position(|armed| *armed != Armed::No)?;
        let slot = TimerSlot::new(index);
        let left = |place: WheelPosition| place.expiry.saturating_sub(self.hz.jiffies(now_ns));
        let expiry = match self.slots[index] {
            Armed::No => return None,
            Armed::Standard(place) => Expiry::Standard { jiffies: left(place) },
            Armed::Deferrable(place) => Expiry::Deferrable { jiffies: left(place) },
            Armed::Exact(Exact { deadline_ns, over_idle, .. }) => {
                Expiry::Exact { deadline_ns, over_idle }
            }
        };
        self.cancel(slot);
        Some((slot, expiry))
    }
}
