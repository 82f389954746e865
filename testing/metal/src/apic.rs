//! The local APIC: interrupts between processors.
//!
//! Registers and their bits: Intel SDM volume 3, chapter "Advanced Programmable Interrupt
//! Controller (APIC)".

use core::ptr::{read_volatile, write_volatile};
use x86_64::instructions::port::Port;

/// Where the registers of each processor's own APIC are after a reset.
const BASE: usize = 0xfee0_0000;
const ID: usize = 0x20;
const END_OF_INTERRUPT: usize = 0xb0;
const SPURIOUS: usize = 0xf0;
const COMMAND: usize = 0x300;
const COMMAND_TARGET: usize = 0x310;
const TIMER: usize = 0x320;
const TIMER_START: usize = 0x380;
const TIMER_NOW: usize = 0x390;
const TIMER_DIVIDE: usize = 0x3e0;

/// In `SPURIOUS`: the APIC is on.
const ON: u32 = 1 << 8;
/// In `COMMAND`: the last command is not delivered yet.
const PENDING: u32 = 1 << 12;
/// In `COMMAND`: level-triggered, asserted.
const ASSERT: u32 = 1 << 14;
const INIT: u32 = 5 << 8;
/// In `TIMER`: no interrupt.
const MASKED: u32 = 1 << 16;
/// In `TIMER_DIVIDE`: every tick counts.
const BY_ONE: u32 = 0b1011;
const START_UP: u32 = 6 << 8;

/// The vector of interrupts that the APIC withdrew.
pub(crate) const SPURIOUS_VECTOR: u8 = 0xff;

fn read(register: usize) -> u32 {
    // SAFETY: the registers are mapped, and reading these has no effect.
    unsafe { read_volatile((BASE + register) as *const u32) }
}

fn write(register: usize, value: u32) {
    // SAFETY: the registers are mapped; what the callers write interrupts processors, which handle
    // it, or starts them.
    unsafe { write_volatile((BASE + register) as *mut u32, value) }
}

/// Turns this processor's APIC on, and the older interrupt controllers off.
pub(crate) fn turn_on() {
    for controller in [0x21, 0xa1] {
        // SAFETY: masks all inputs of an 8259.
        unsafe { Port::<u8>::new(controller).write(0xff) };
    }
    write(SPURIOUS, ON | u32::from(SPURIOUS_VECTOR));
}

/// The number of this processor's APIC.
pub(crate) fn id() -> u8 {
    (read(ID) >> 24) as u8
}

/// Tells the APIC that the interrupt is handled.
pub(crate) fn end_of_interrupt() {
    write(END_OF_INTERRUPT, 0);
}

/// Arms the one-shot timer: it interrupts after `ticks` of its clock, with `vector`.
pub(crate) fn arm_timer(ticks: u32, vector: u8) {
    write(TIMER_DIVIDE, BY_ONE);
    write(TIMER, u32::from(vector));
    write(TIMER_START, ticks);
}

/// Stops the timer, and masks its interrupt.
pub(crate) fn stop_timer() {
    write(TIMER, MASKED);
    write(TIMER_START, 0);
}

/// The ticks that are left of the timer.
pub(crate) fn timer_ticks() -> u32 {
    read(TIMER_NOW)
}

/// Interrupts the processor with APIC `target`.
pub(crate) fn send(target: u8, vector: u8) {
    command(target, u32::from(vector));
}

/// Resets the processor with APIC `target`.
pub(crate) fn send_init(target: u8) {
    command(target, INIT | ASSERT);
}

/// Starts that processor, in 16-bit mode, in `page`.
pub(crate) fn send_start_up(target: u8, page: u8) {
    command(target, START_UP | u32::from(page));
}

/// Interrupts are off between the two writes: a handler that sends would change the target.
fn command(target: u8, command: u32) {
    x86_64::instructions::interrupts::without_interrupts(|| {
        write(COMMAND_TARGET, u32::from(target) << 24);
        write(COMMAND, command);
        while read(COMMAND) & PENDING != 0 {
            core::hint::spin_loop();
        }
    });
}
