//! Grace periods: which events end one, and which must not.

use mmscale_arch::{Cpu as _, CpuId, Ipi, Machine as _, TaskId};
use mmscale_mm::rcu::Rcu;
use mmscale_stepped::{self as stepped, Stepped};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Begins a grace period on CPU 0 that has to wait: on this machine the park panics, and the grace
/// period stays begun. Returns whether it had to wait.
fn begin(rcu: &Rcu<Stepped>, expedited: bool) -> bool {
    stepped::set_cpu(0);
    let waited = catch_unwind(AssertUnwindSafe(|| {
        if expedited { rcu.synchronize_expedited() } else { rcu.synchronize() }
    }));
    waited.is_err()
}

fn boot(cpus: usize) -> Rcu<Stepped> {
    stepped::boot(cpus, 1000);
    // The task of CPU 0 must differ from those of other CPUs.
    stepped::set_task(TaskId::new(100));
    Rcu::new()
}

/// Whether the waiter was woken since the last call.
fn woken() -> bool {
    let woken = stepped::unpark_tokens() == [TaskId::new(100)];
    if woken {
        stepped::set_cpu(0);
        Stepped::park();
    }
    woken
}

fn on(cpu: usize, f: impl FnOnce()) {
    stepped::set_cpu(cpu);
    stepped::interrupt(f);
}

#[test]
fn idle_cpus_owe_nothing() {
    let rcu = boot(3);
    (0..3).for_each(|cpu| on(cpu, || rcu.idle_enter()));
    assert!(!begin(&rcu, false) && !begin(&rcu, true));
    on(2, || rcu.idle_exit());
    assert!(begin(&rcu, false));
    assert!(!woken());
    on(2, || rcu.idle_enter());
    assert!(woken());
}

#[test]
fn every_busy_cpu_has_to_pass_a_quiescent_state() {
    let rcu = boot(3);
    assert!(begin(&rcu, false));
    on(1, || rcu.context_switch());
    on(0, || rcu.context_switch());
    on(1, || rcu.context_switch());
    assert!(!woken(), "cpu2 has not passed one");
    on(2, || rcu.tick());
    assert!(woken());
}

#[test]
fn a_tick_inside_a_reader_is_no_quiescent_state() {
    let rcu = boot(2);
    stepped::set_cpu(1);
    let outer = rcu.read();
    let inner = rcu.read();
    assert!(begin(&rcu, false));
    on(0, || rcu.context_switch());
    // An interrupt with a reader of its own, inside the task's reader.
    on(1, || {
        drop(rcu.read());
        rcu.tick();
    });
    drop(inner);
    on(1, || rcu.tick());
    assert!(!woken());
    stepped::set_cpu(1);
    drop(outer);
    assert!(!woken(), "no waiter: the next tick reports it");
    on(1, || rcu.tick());
    assert!(woken());
    stepped::assert_quiet();
}

#[test]
fn an_expedited_grace_period_asks_only_those_it_waits_for() {
    let rcu = boot(4);
    on(1, || rcu.idle_enter());
    stepped::set_cpu(3);
    let reader = rcu.read();
    assert!(begin(&rcu, true));
    let asked = stepped::take_ipis();
    assert_eq!(asked, [2, 3].map(|cpu| (CpuId::new(cpu), Ipi::RcuExpedited)));
    asked.iter().for_each(|(cpu, _)| on(cpu.index(), || rcu.expedited_ipi()));
    assert!(!woken());
    stepped::set_cpu(3);
    drop(reader);
    assert!(woken(), "the reader's end is reported immediately, without a tick");
}

#[test]
fn a_dying_cpu_is_waited_for_until_it_is_dead() {
    let rcu = boot(2);
    stepped::set_cpu(1);
    let reader = core::mem::ManuallyDrop::new(rcu.read());
    stepped::set_cpu(0);
    stepped::set_online(1, false);
    assert!(begin(&rcu, true), "out of the mask, but it still runs its reader");
    assert!(stepped::take_ipis().is_empty(), "no interrupt to a CPU that is offline");
    drop(core::mem::ManuallyDrop::into_inner(reader_on(1, reader)));
    rcu.cpu_dead(CpuId::new(1));
    stepped::set_cpu(0);
    on(0, || rcu.context_switch());
    assert!(woken());
}

/// Switches to `cpu`, whose guard is dropped next.
fn reader_on<T>(cpu: usize, guard: T) -> T {
    stepped::set_cpu(cpu);
    guard
}

/// An interrupted machine drops the guards of all CPUs on its last one.
#[test]
fn readers_of_an_interrupted_machine_end_on_any_cpu() {
    let rcu = boot(3);
    let readers = [0, 1, 1, 2].map(|cpu| {
        stepped::set_cpu(cpu);
        rcu.read()
    });
    stepped::set_cpu(2);
    // This machine counts preemption for each CPU, and lets none enable what it has not disabled.
    (0..3).for_each(|_| Stepped::preempt_disable());
    drop(readers);
}
