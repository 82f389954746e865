//! The table of interrupts, and what happens at each.

use crate::apic;
use crate::cpu::{DRAIN_VECTOR, Metal};
use core::cell::UnsafeCell;
use x86_64::VirtAddr;
use x86_64::instructions::tables::lidt;
use x86_64::registers::control::Cr2;
use x86_64::structures::DescriptorTablePointer;

unsafe extern "C" {
    /// 256 stubs of 16 bytes, in `entry.s`.
    static interrupt_stubs: [[u8; 16]; 256];
}

/// The words that `interrupt_entry` and the processor push, from the lowest address.
#[repr(C)]
struct Frame {
    registers: [u64; 15],
    vector: u64,
    error: u64,
    rip: u64,
    cs: u64,
    flags: u64,
    rsp: u64,
    ss: u64,
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
    x86_64::instructions::interrupts::enable();
}

#[unsafe(no_mangle)]
extern "C" fn interrupt(frame: &Frame) {
    match frame.vector as u8 {
        DRAIN_VECTOR => {
            Metal::drain();
            apic::end_of_interrupt();
        }
        // It needs no end.
        apic::SPURIOUS_VECTOR => {}
        vector => panic!(
            "exception {vector}, error code {:#x}, at {:#x}, address {:#x}",
            frame.error,
            frame.rip,
            Cr2::read_raw(),
        ),
    }
}
