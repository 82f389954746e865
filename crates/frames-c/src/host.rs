//! The functions that the program in C defines.

use mmscale_arch::bare::{Bare, BareCpu};
use mmscale_arch::{CpuId, IrqState};

unsafe extern "C" {
    /// The number of the CPU that this runs on, below `mms_cpus()`. It stays the same between
    /// `mms_preempt_disable` and `mms_preempt_enable`, and no other code has it in that time but
    /// interrupts on the CPU.
    fn mms_cpu() -> u32;
    /// The number of CPUs that may ever exist. Constant.
    fn mms_cpus() -> u32;
    /// Disables preemption; nests.
    fn mms_preempt_disable();
    /// Ends one `mms_preempt_disable`.
    fn mms_preempt_enable();
    /// Disables interrupts on this CPU; returns whether they were on. May do nothing where no
    /// interrupt handler allocates or frees.
    fn mms_irq_save() -> bool;
    /// Turns interrupts on again if `were_on`.
    fn mms_irq_restore(were_on: bool);
    /// Interrupts another CPU, whose handler calls `mms_drain_interrupt`; returns true. Returns
    /// false, and does nothing, where CPUs cannot interrupt one another.
    fn mms_request_drain(cpu: u32) -> bool;
}

/// The CPUs of the program in C, as a tag type.
pub struct Host;

/// The machine of the allocator.
pub type Machine = BareCpu<Host>;

// SAFETY: the program's functions keep these rules, as their comments in the header ask for.
unsafe impl Bare for Host {
    #[inline]
    fn cpu() -> CpuId {
        // SAFETY: the program defines it as the header says; so for those below.
        CpuId::new(unsafe { mms_cpu() } as usize)
    }
    #[inline]
    fn cpus() -> usize {
        // SAFETY: as in `cpu`.
        unsafe { mms_cpus() as usize }
    }
    #[inline]
    fn preempt_disable() {
        // SAFETY: as in `cpu`.
        unsafe { mms_preempt_disable() };
    }
    #[inline]
    fn preempt_enable() {
        // SAFETY: as in `cpu`.
        unsafe { mms_preempt_enable() };
    }
    #[inline]
    fn irq_save() -> IrqState {
        // SAFETY: as in `cpu`.
        IrqState(unsafe { mms_irq_save() })
    }
    #[inline]
    fn irq_restore(state: IrqState) {
        // SAFETY: as in `cpu`.
        unsafe { mms_irq_restore(state.0) };
    }
    fn request_drain(cpu: CpuId) -> bool {
        // SAFETY: as in `cpu`.
        unsafe { mms_request_drain(cpu.index() as u32) }
    }
}
