//! Data of each processor, and interrupts between processors.

use crate::apic;
use core::arch::asm;
use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use mmscale_arch::{Callbacks, CpuId, Ipi};
use x86_64::VirtAddr;
use x86_64::instructions::interrupts;
use x86_64::registers::model_specific::GsBase;

/// Processors that this kernel can use.
pub(crate) const MAX_CPUS: usize = 8;

/// The vector of all interrupts between processors: `PerCpu::pending` has the reasons.
pub(crate) const IPI_VECTOR: u8 = 0xf0;
/// The deadline of a timer that is not armed.
pub(crate) const NEVER: u64 = u64::MAX;
/// The bit of `PerCpu::pending` that only ends the processor's sleep.
const WAKE: u32 = 1 << Ipi::COUNT;
const REASONS: [Ipi; Ipi::COUNT] =
    [Ipi::CallFunction, Ipi::RcuExpedited, Ipi::Timer, Ipi::Block, Ipi::DrainPages];

/// Data of one processor; the segment register GS has its address.
#[repr(C, align(128))]
pub(crate) struct PerCpu {
    /// The processor's number, at the address of GS.
    cpu: AtomicUsize,
    /// Calls of `preempt_disable` without their `preempt_enable`.
    pub(crate) pinned: AtomicI64,
    /// The number of its local APIC.
    apic: AtomicU8,
    /// Whether it handles an interrupt.
    pub(crate) in_interrupt: AtomicBool,
    /// Whether it has called `idle_enter` without an `idle_exit`.
    pub(crate) is_idle: AtomicBool,
    /// Reasons of an interrupt that it has not handled: the discriminants of [`Ipi`] as bits, and
    /// [`WAKE`]. The processor that sets the first bit sends the interrupt.
    pending: AtomicU32,
    /// When its timer is to expire, in ns; [`NEVER`]: it is not armed.
    pub(crate) deadline_ns: AtomicU64,
    /// Interrupts that were sent to it, and that it has handled.
    sent: AtomicU64,
    handled: AtomicU64,
}

static PER_CPU: [PerCpu; MAX_CPUS] = [const {
    PerCpu {
        cpu: AtomicUsize::new(0),
        pinned: AtomicI64::new(0),
        apic: AtomicU8::new(0),
        in_interrupt: AtomicBool::new(false),
        is_idle: AtomicBool::new(false),
        pending: AtomicU32::new(0),
        deadline_ns: AtomicU64::new(NEVER),
        sent: AtomicU64::new(0),
        handled: AtomicU64::new(0),
    }
}; MAX_CPUS];

/// The number of processors.
static CPUS: AtomicUsize = AtomicUsize::new(1);

/// Makes the calling processor number `cpu`, with local APIC `apic`. Once, before its other
/// functions are called there.
pub(crate) fn enter(cpu: usize, apic: u8) {
    let own = &PER_CPU[cpu];
    own.cpu.store(cpu, Ordering::Relaxed);
    own.apic.store(apic, Ordering::Relaxed);
    GsBase::write(VirtAddr::from_ptr(own));
}

/// Sets the number of processors; before any allocator is made.
pub(crate) fn set_cpus(cpus: usize) {
    CPUS.store(cpus, Ordering::Relaxed);
}

/// The number of processors.
#[inline]
pub(crate) fn count() -> usize {
    CPUS.load(Ordering::Relaxed)
}

/// The number of the calling processor.
#[inline]
pub(crate) fn this() -> CpuId {
    let cpu: usize;
    // SAFETY: `enter` has set GS, and the number is at its address.
    unsafe { asm!("mov {}, gs:[0]", out(reg) cpu, options(nostack, preserves_flags, readonly)) };
    CpuId::new(cpu)
}

/// The data of the calling processor.
#[inline]
pub(crate) fn own() -> &'static PerCpu {
    &PER_CPU[this().index()]
}

/// Panics if a guard of the calling processor was left, or interrupts are off.
pub(crate) fn check_quiet() {
    let pinned = own().pinned.load(Ordering::Relaxed);
    assert!(pinned == 0, "{pinned} guards against preemption are left");
    assert!(interrupts::are_enabled(), "interrupts were left off");
}

/// Interrupts `cpu` for `reason`.
pub(crate) fn send(cpu: CpuId, reason: Ipi) {
    send_bit(cpu, 1 << reason as u32);
}

/// Interrupts `cpu` so that it looks for tasks.
pub(crate) fn wake(cpu: CpuId) {
    send_bit(cpu, WAKE);
}

fn send_bit(cpu: CpuId, bit: u32) {
    let target = &PER_CPU[cpu.index()];
    // Pairs with the exchange in `handle`, after which all earlier writes are seen.
    if target.pending.fetch_or(bit, Ordering::AcqRel) == 0 {
        // Pairs with the loads in `interrupts`: one is never handled before it is sent.
        target.sent.fetch_add(1, Ordering::Release);
        apic::send(target.apic.load(Ordering::Relaxed), IPI_VECTOR);
    }
}

/// Handles [`IPI_VECTOR`]; interrupts are off.
pub(crate) fn handle(callbacks: &dyn Callbacks) {
    let own = own();
    // Pairs with the exchange in `send_bit`.
    let reasons = own.pending.swap(0, Ordering::AcqRel);
    REASONS.into_iter().filter(|&reason| reasons >> reason as u32 & 1 != 0).for_each(|reason| {
        callbacks.ipi(reason);
    });
    // Pairs with the loads in `interrupts`.
    own.handled.fetch_add(1, Ordering::Release);
}

/// Interrupts between processors so far: sent, and handled. The second is the older number.
pub(crate) fn interrupts_so_far() -> (u64, u64) {
    // Pairs with the increments in `handle` and `send_bit`.
    let sum = |of: fn(&PerCpu) -> &AtomicU64| {
        PER_CPU.iter().map(|cpu| of(cpu).load(Ordering::Acquire)).sum()
    };
    let handled = sum(|cpu| &cpu.handled);
    (sum(|cpu| &cpu.sent), handled)
}
