//! Time: the processor's time-stamp counter, and the timer of the local APIC.

use crate::apic;
use crate::per_cpu::{self, NEVER};
use core::arch::x86_64::_rdtsc;
use core::sync::atomic::{AtomicU64, Ordering};
use x86_64::instructions::interrupts::without_interrupts;
use x86_64::instructions::port::Port;

/// The vector of the timer.
pub(crate) const TIMER_VECTOR: u8 = 0xf1;

/// The frequency of the programmable interval timer of a PC, in Hz, and how many of its ticks the
/// other clocks are measured for: 50 ms.
const PIT_HZ: u64 = 1_193_182;
const PIT_TICKS: u64 = PIT_HZ / 20;
const NS_PER_S: u64 = 1_000_000_000;

/// The counter at the start, and the frequencies of the counter and of the timer in Hz.
static START: AtomicU64 = AtomicU64::new(0);
static COUNTER_HZ: AtomicU64 = AtomicU64::new(0);
static TIMER_HZ: AtomicU64 = AtomicU64::new(0);

fn counter() -> u64 {
    // SAFETY: all 64-bit processors have the instruction, and nothing forbids it here.
    unsafe { _rdtsc() }
}

/// Measures the clocks; on the first processor, once.
pub(crate) fn prepare() {
    without_interrupts(|| {
        apic::arm_timer(u32::MAX, TIMER_VECTOR);
        let (counted, ticked) = (counter(), apic::timer_ticks());
        wait_for_pit();
        let counted = counter() - counted;
        let ticked = ticked - apic::timer_ticks();
        apic::stop_timer();
        COUNTER_HZ.store(counted * PIT_HZ / PIT_TICKS, Ordering::Relaxed);
        TIMER_HZ.store(u64::from(ticked) * PIT_HZ / PIT_TICKS, Ordering::Relaxed);
        START.store(counter(), Ordering::Relaxed);
    });
}

/// Waits for [`PIT_TICKS`] by the third channel of the interval timer, in mode 0 (8254 data sheet).
fn wait_for_pit() {
    let (mut gate, mut mode) = (Port::<u8>::new(0x61), Port::<u8>::new(0x43));
    let mut channel = Port::<u8>::new(0x42);
    // SAFETY: the ports of a timer that nothing else uses.
    unsafe {
        // The gate on, the speaker off.
        let before = gate.read() & !0b11;
        gate.write(before | 1);
        mode.write(0b1011_0000);
        channel.write(PIT_TICKS as u8);
        channel.write((PIT_TICKS >> 8) as u8);
        while gate.read() & 1 << 5 == 0 {}
        gate.write(before);
    }
}

/// The time since [`prepare`], in ns; the same on all processors.
pub(crate) fn now_ns() -> u64 {
    let counted = counter().saturating_sub(START.load(Ordering::Relaxed));
    let hz = COUNTER_HZ.load(Ordering::Relaxed);
    (u128::from(counted) * u128::from(NS_PER_S) / u128::from(hz)) as u64
}

/// Arms the timer of the calling processor for `deadline_ns`. If its register is too narrow, it
/// interrupts earlier.
pub(crate) fn arm(deadline_ns: u64) {
    per_cpu::own().deadline_ns.store(deadline_ns, Ordering::Relaxed);
    let ns = deadline_ns.saturating_sub(now_ns());
    let ticks = u128::from(ns) * u128::from(TIMER_HZ.load(Ordering::Relaxed));
    let ticks = (ticks / u128::from(NS_PER_S)).clamp(1, u128::from(u32::MAX));
    apic::arm_timer(ticks as u32, TIMER_VECTOR);
}

/// Disarms the timer of the calling processor.
pub(crate) fn cancel() {
    per_cpu::own().deadline_ns.store(NEVER, Ordering::Relaxed);
    apic::stop_timer();
}
