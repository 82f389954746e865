//! The checks of the machine find the errors that they are for.

use mmscale_arch::sync::SpinLock;
use mmscale_arch::{Cpu as _, Ipi, LockClass, Machine as _, Op, TaskId};
use mmscale_stepped::{self as stepped, Stepped};

fn lock(class: LockClass) -> SpinLock<Stepped, u32> {
    SpinLock::new(class, 0)
}

#[test]
#[should_panic(expected = "would spin for ever")]
fn a_lock_held_elsewhere_cannot_be_got() {
    stepped::boot(2, 1000);
    let zone = lock(LockClass::Zone);
    let _held = zone.lock_irqsave();
    stepped::set_cpu(1);
    core::mem::forget(zone.lock_irqsave());
}

#[test]
#[should_panic(expected = "lock order")]
fn ranks_turned_round_are_caught() {
    stepped::boot(1, 1000);
    let (pcp, zone) = (lock(LockClass::Pcp), lock(LockClass::Zone));
    let _zone = core::mem::ManuallyDrop::new(zone.lock_irqsave());
    core::mem::forget(pcp.lock());
}

#[test]
#[should_panic(expected = "in interrupts and taken with interrupts on")]
fn a_lock_taken_both_ways_is_caught() {
    stepped::boot(1, 1000);
    let other = lock(LockClass::Other);
    drop(other.lock());
    stepped::interrupt(|| core::mem::forget(other.lock()));
}

#[test]
#[should_panic(expected = "in interrupts and taken with interrupts on")]
fn a_lock_got_by_trying_is_held_like_any_other() {
    stepped::boot(1, 1000);
    let other = lock(LockClass::Other);
    drop(other.try_lock());
    stepped::interrupt(|| core::mem::forget(other.lock()));
}

#[test]
fn an_interrupt_that_only_tries_does_not_wait() {
    stepped::boot(1, 1000);
    let other = lock(LockClass::Other);
    drop(other.lock());
    stepped::interrupt(|| drop(other.try_lock()));
    drop(other.lock());
    stepped::assert_quiet();
}

#[test]
#[should_panic(expected = "unlocked by another CPU")]
fn a_lock_released_on_another_cpu_is_caught() {
    stepped::boot(2, 1000);
    let held = core::mem::ManuallyDrop::new(lock(LockClass::Other));
    let guard = held.lock_irqsave();
    stepped::set_cpu(1);
    drop(guard);
}

#[test]
#[should_panic(expected = "parked while atomic")]
fn sleeping_while_atomic_is_caught() {
    stepped::boot(1, 1000);
    Stepped::unpark(TaskId::new(0));
    stepped::interrupt(Stepped::park);
}

#[test]
#[should_panic(expected = "cpu0 has preemption off")]
fn an_unbalanced_guard_is_caught() {
    stepped::boot(1, 1000);
    Stepped::preempt_disable();
    stepped::assert_quiet();
}

#[test]
#[should_panic(expected = "sleep for ever")]
fn a_park_without_an_unpark_is_caught() {
    stepped::boot(1, 1000);
    Stepped::unpark(TaskId::new(0));
    Stepped::park();
    Stepped::park();
}

#[test]
fn cpus_are_apart_and_a_try_fails() {
    stepped::boot(3, 250);
    let zone = lock(LockClass::Zone);
    let held = zone.lock_irqsave();
    stepped::set_cpu(2);
    assert!(zone.try_lock_irqsave().is_none());
    Stepped::timer_arm(500);
    Stepped::work(Op::Syscall, 3);
    Stepped::ipi_send(Stepped::cpu(), Ipi::CallFunction);
    stepped::set_cpu(0);
    drop(held);
    stepped::assert_quiet();
    assert_eq!(stepped::timer_of(2), Some(500));
    assert_eq!(stepped::work_count(Op::Syscall), 3);
    assert_eq!(stepped::take_ipis().len(), 1);
    assert_eq!(stepped::lock_acquisitions(LockClass::Zone), 1);
}
