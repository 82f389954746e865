//! The machine catches what it promises to catch.

use mmscale_mm::arch::{Arch, Ipi, LockClass, Op, TaskId};
use mmscale_mm::sync::SpinLock;
use mmscale_uni::{self as uni, Uni};

fn lock(class: LockClass) -> SpinLock<Uni, u32> {
    SpinLock::new(class, 0)
}

#[test]
#[should_panic(expected = "would spin for ever")]
fn a_lock_held_elsewhere_cannot_be_got() {
    uni::boot(2, 1000);
    let zone = lock(LockClass::Zone);
    let _held = zone.lock_irqsave();
    uni::set_cpu(1);
    core::mem::forget(zone.lock_irqsave());
}

#[test]
#[should_panic(expected = "lock order")]
fn ranks_turned_round_are_caught() {
    uni::boot(1, 1000);
    let (pcp, zone) = (lock(LockClass::Pcp), lock(LockClass::Zone));
    let _zone = core::mem::ManuallyDrop::new(zone.lock_irqsave());
    core::mem::forget(pcp.lock());
}

#[test]
#[should_panic(expected = "in interrupts and taken with interrupts on")]
fn a_lock_taken_both_ways_is_caught() {
    uni::boot(1, 1000);
    let other = lock(LockClass::Other);
    drop(other.lock());
    uni::interrupt(|| core::mem::forget(other.lock()));
}

#[test]
#[should_panic(expected = "in interrupts and taken with interrupts on")]
fn a_lock_got_by_trying_is_held_like_any_other() {
    uni::boot(1, 1000);
    let other = lock(LockClass::Other);
    drop(other.try_lock());
    uni::interrupt(|| core::mem::forget(other.lock()));
}

#[test]
fn an_interrupt_that_only_tries_waits_for_nobody() {
    uni::boot(1, 1000);
    let other = lock(LockClass::Other);
    drop(other.lock());
    uni::interrupt(|| drop(other.try_lock()));
    drop(other.lock());
    uni::assert_quiet();
}

#[test]
#[should_panic(expected = "unlocked by another CPU")]
fn a_lock_let_go_elsewhere_is_caught() {
    uni::boot(2, 1000);
    let held = core::mem::ManuallyDrop::new(lock(LockClass::Other));
    let guard = held.lock_irqsave();
    uni::set_cpu(1);
    drop(guard);
}

#[test]
#[should_panic(expected = "parked while atomic")]
fn sleeping_while_atomic_is_caught() {
    uni::boot(1, 1000);
    Uni::unpark(TaskId::new(0));
    uni::interrupt(Uni::park);
}

#[test]
#[should_panic(expected = "cpu0 has preemption off")]
fn an_unbalanced_guard_is_caught() {
    uni::boot(1, 1000);
    Uni::preempt_disable();
    uni::assert_quiet();
}

#[test]
#[should_panic(expected = "sleep for ever")]
fn a_park_that_nobody_ends_is_caught() {
    uni::boot(1, 1000);
    Uni::unpark(TaskId::new(0));
    Uni::park();
    Uni::park();
}

#[test]
fn cpus_are_apart_and_a_try_fails() {
    uni::boot(3, 250);
    let zone = lock(LockClass::Zone);
    let held = zone.lock_irqsave();
    uni::set_cpu(2);
    assert!(zone.try_lock_irqsave().is_none());
    Uni::timer_arm(500);
    Uni::work(Op::Syscall, 3);
    Uni::ipi_send(Uni::cpu(), Ipi::CallFunction);
    uni::set_cpu(0);
    drop(held);
    uni::assert_quiet();
    assert_eq!(uni::timer_of(2), Some(500));
    assert_eq!(uni::work_count(Op::Syscall), 3);
    assert_eq!(uni::take_ipis().len(), 1);
    assert_eq!(uni::lock_acquisitions(LockClass::Zone), 1);
}
