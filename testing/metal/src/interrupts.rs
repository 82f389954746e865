//! The table of interrupts, and what happens at each.

use crate::clock::{self, TIMER_VECTOR};
use crate::per_cpu::{self, IPI_VECTOR, NEVER};
use crate::{access, apic, callbacks};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering;
use x86_64::VirtAddr;
use x86_64::instructions::interrupts as flag;
use x86_64::instructions::tables::lidt;
use x86_64::registers::control::Cr2;
use x86_64::structures::DescriptorTablePointer;

unsafe extern "C" {
    /// 256 stubs of 16 bytes, in `entry.s`.
    static interrupt_stubs: [[u8; 16]; 256];
}

/// The vector of page faults.
const PAGE_FAULT: u8 = 14;

/// The words that `interrupt_entry` and the processor push, from the lowest address.
#[repr(C)]
struct Frame {
    r15_to_r8: [u64; 8],
    rdi: u64,
    /// The second argument of the interrupted function, if it has not changed it.
    rsi: u64,
    rbp_to_rax: [u64; 5],
    vector: u64,
    /// The error code; of a page fault, bit 1 is set for a write.
    error: u64,
    /// Where the interrupted code goes on.
    rip: u64,
    cs: u64,
    flags: u64,
    rsp: u64,
    ss: u64,
}

impl Frame {
    /// Whether interrupts were on.
    fn had_interrupts(&self) -> bool {
        self.flags & 1 << 9 != 0
    }
}

/// An entry of the table: a 64-bit interrupt gate, which turns interrupts off.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Gate([u64; 2]);

impl Gate {
    const NONE: Self = Self([0; 2]);

    /// The gate to code at `at`, in segment 8. Intel SDM volume 3, "64-Bit Mode IDT".
    const fn to(at: u64) -> Self {
        let (present_interrupt_gate, segment) = (0x8e00 << 32, 8 << 16);
        Self([at & 0xffff | segment | present_interrupt_gate | (at >> 16 & 0xffff) << 48, at >> 32])
    }
}

struct Gates(UnsafeCell<[Gate; 256]>);

// SAFETY: the first processor writes it before the others start.
unsafe impl Sync for Gates {}

static GATES: Gates = Gates(UnsafeCell::new([Gate::NONE; 256]));

/// Fills the table; on the first processor, before the others start.
pub(crate) fn prepare() {
    let stubs = &raw const interrupt_stubs as u64;
    // SAFETY: no other processor runs.
    let gates = unsafe { &mut *GATES.0.get() };
    for (vector, gate) in gates.iter_mut().enumerate() {
        *gate = Gate::to(stubs + 16 * vector as u64);
    }
}

/// Loads the table, and turns interrupts on.
pub(crate) fn turn_on() {
    let limit = (size_of::<[Gate; 256]>() - 1) as u16;
    let pointer = DescriptorTablePointer { limit, base: VirtAddr::from_ptr(GATES.0.get()) };
    // SAFETY: all gates lead to code that returns to what was interrupted.
    unsafe { lidt(&pointer) };
    apic::turn_on();
    flag::enable();
}

/// Handles an interrupt or an exception. Interrupts are off.
#[unsafe(no_mangle)]
extern "C" fn interrupt(frame: &mut Frame) {
    match frame.vector as u8 {
        IPI_VECTOR => in_interrupt(|| per_cpu::handle(callbacks::current())),
        TIMER_VECTOR => in_interrupt(|| {
            let deadline = &per_cpu::own().deadline_ns;
            match deadline.load(Ordering::Relaxed) {
                NEVER => {}
                early_ns if clock::now_ns() < early_ns => clock::arm(early_ns),
                _ => {
                    deadline.store(NEVER, Ordering::Relaxed);
                    callbacks::current().timer();
                }
            }
        }),
        // It needs no end.
        apic::SPURIOUS_VECTOR => {}
        PAGE_FAULT if access::is_access(frame.rip) => {
            if frame.had_interrupts() {
                flag::enable();
            }
            let is_write = frame.error & 1 << 1 != 0;
            let goes_on = access::fault(Cr2::read_raw(), is_write.then_some(frame.rsi));
            flag::disable();
            frame.rip = goes_on.unwrap_or(frame.rip);
        }
        vector => panic!(
            "exception {vector}, error code {:#x}, at {:#x}, address {:#x}",
            frame.error,
            frame.rip,
            Cr2::read_raw(),
        ),
    }
}

fn in_interrupt(handle: impl FnOnce()) {
    callbacks::leave_idle();
    let inside = &per_cpu::own().in_interrupt;
    inside.store(true, Ordering::Relaxed);
    handle();
    inside.store(false, Ordering::Relaxed);
    apic::end_of_interrupt();
}
