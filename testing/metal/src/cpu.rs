//! The processors as the frame allocator sees them: six functions and interrupts to drain.

use crate::apic;
use core::arch::asm;
use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use mmscale_arch::bare::{Bare, BareCpu};
use mmscale_arch::{CpuId, IrqState};
use mmscale_frames::page_alloc::FrameAllocator;
use x86_64::VirtAddr;
use x86_64::instructions::interrupts;
use x86_64::registers::model_specific::GsBase;

/// Processors that this kernel can use.
pub(crate) const MAX_CPUS: usize = 8;

/// The vector of a request to drain the page cache.
pub(crate) const DRAIN_VECTOR: u8 = 0xf0;

/// The frame allocator of this kernel.
pub(crate) type Frames = FrameAllocator<BareCpu<Metal>>;

/// Data of one processor; the segment register GS has its address.
#[repr(C, align(128))]
struct PerCpu {
    /// The processor's number, at the address of GS.
    cpu: AtomicUsize,
    /// Calls of `preempt_disable` without their `preempt_enable`.
    pinned: AtomicI64,
    /// The number of its local APIC.
    apic: AtomicU8,
    /// Requests to drain that it was sent, and that it handled.
    drains_sent: AtomicU64,
    drains_handled: AtomicU64,
}

static PER_CPU: [PerCpu; MAX_CPUS] = [const {
    PerCpu {
        cpu: AtomicUsize::new(0),
        pinned: AtomicI64::new(0),
        apic: AtomicU8::new(0),
        drains_sent: AtomicU64::new(0),
        drains_handled: AtomicU64::new(0),
    }
}; MAX_CPUS];

/// The number of processors.
static CPUS: AtomicUsize = AtomicUsize::new(1);

/// The allocator that [`DRAIN_VECTOR`] drains.
static DRAINED: AtomicPtr<Frames> = AtomicPtr::new(core::ptr::null_mut());

/// The processors of this computer. Nothing preempts code here but interrupts.
pub(crate) struct Metal;

impl Metal {
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

    fn own() -> &'static PerCpu {
        &PER_CPU[Self::cpu().index()]
    }

    /// Handles [`DRAIN_VECTOR`]; interrupts are off.
    pub(crate) fn drain() {
        // Pairs with the store in `with_drains`. SAFETY: `with_drains` waits for all requests
        // before the allocator ends.
        if let Some(frames) = unsafe { DRAINED.load(Ordering::Acquire).as_ref() } {
            frames.drain_ipi();
        }
        // Pairs with the loads in `drains`.
        Self::own().drains_handled.fetch_add(1, Ordering::Release);
    }

    /// Runs `run`, during which requests to drain drain `frames`; waits until all are handled.
    pub(crate) fn with_drains<R>(frames: &Frames, run: impl FnOnce() -> R) -> R {
        // Pairs with the load in `drain`.
        DRAINED.store(core::ptr::from_ref(frames).cast_mut(), Ordering::Release);
        let result = run();
        while {
            let (sent, handled) = Self::drains();
            sent != handled
        } {
            Self::relax();
        }
        DRAINED.store(core::ptr::null_mut(), Ordering::Release);
        result
    }

    /// Requests to drain so far: sent, and handled. The second is the older one.
    pub(crate) fn drains() -> (u64, u64) {
        // Pairs with the increments in `drain` and `request_drain`.
        let sum = |of: fn(&PerCpu) -> &AtomicU64| {
            PER_CPU.iter().map(|cpu| of(cpu).load(Ordering::Acquire)).sum()
        };
        let handled = sum(|cpu| &cpu.drains_handled);
        (sum(|cpu| &cpu.drains_sent), handled)
    }

    /// Panics if a guard of the calling processor was left, or interrupts are off.
    pub(crate) fn check_quiet() {
        let pinned = Self::own().pinned.load(Ordering::Relaxed);
        assert!(pinned == 0, "{} guards against preemption are left", pinned);
        assert!(interrupts::are_enabled(), "interrupts were left off");
    }
}

// SAFETY: GS has the address of the data of the processor that runs the code, and no other has its
// number. Code never moves to another processor.
unsafe impl Bare for Metal {
    #[inline]
    fn cpu() -> CpuId {
        let cpu: usize;
        // SAFETY: `enter` has set GS, and the number is at its address.
        unsafe {
            asm!("mov {}, gs:[0]", out(reg) cpu, options(nostack, preserves_flags, readonly))
        };
        CpuId::new(cpu)
    }
    #[inline]
    fn cpus() -> usize {
        CPUS.load(Ordering::Relaxed)
    }
    #[inline]
    fn preempt_disable() {
        Self::own().pinned.fetch_add(1, Ordering::Relaxed);
    }
    #[inline]
    fn preempt_enable() {
        Self::own().pinned.fetch_sub(1, Ordering::Relaxed);
    }
    #[inline]
    fn irq_save() -> IrqState {
        let were_on = interrupts::are_enabled();
        interrupts::disable();
        IrqState(were_on)
    }
    #[inline]
    fn irq_restore(state: IrqState) {
        if state.0 {
            interrupts::enable();
        }
    }
    fn request_drain(cpu: CpuId) -> bool {
        let target = &PER_CPU[cpu.index()];
        // Pairs with the loads in `drains`: a request is never handled before it is sent.
        target.drains_sent.fetch_add(1, Ordering::Release);
        apic::send(target.apic.load(Ordering::Relaxed), DRAIN_VECTOR);
        true
    }
}
