//! Blame: the parts of a wait are what the holders did, and their sum is the wait.

use crate::common::{config, run_well};
use mmscale_arch::sync::{IrqGuard, SpinLock};
use mmscale_arch::{
    Access, Cpu as _, Func, Line, LockClass, LockInstance, NodeId, Op, Span, random,
};
use mmscale_document::Doing::{MissCluster, MissCore, MissMemory, MissNode, MissRemote};
use mmscale_document::{BlameRow, Doing};
use mmscale_sim::{Disturbance, Gaps, Lengths, Noise, Outcome, Policy, Sim};
use mmscale_sim::{SimConfig, profile::Topology};
use std::collections::BTreeMap;
use std::rc::Rc;

pub(crate) type Lock = Rc<SpinLock<Sim, ()>>;

pub(crate) fn lock(class: LockClass) -> Lock {
    Rc::new(SpinLock::new(class, ()))
}

/// A machine without jitter whose CPUs share a cache. Times in ns: lock 10, unlock 5, handoff 60, a
/// line in the own cache 5, a transfer 25, one operation 1.
pub(crate) fn exact(cpus: usize) -> SimConfig {
    let mut config = SimConfig { blame: true, ..config(cpus) };
    config.profile.topology = Topology { cpus, smt: 1, cluster: cpus, nodes: 1 };
    let costs = &mut config.profile.costs;
    costs.op_ps[Op::Syscall as usize] = 1_000;
    (costs.line.own_ps, costs.line.cluster_ps) = (5_000, 25_000);
    (costs.lock_ps, costs.unlock_ps, costs.handoff_fixed_ps) = (10_000, 5_000, 60_000);
    costs.jitter_1024 = 0;
    config
}

pub(crate) fn work(ns: u32) {
    Sim::work(Op::Syscall, ns);
}

/// The end of each holder's path, what it did, through which class, and for how many ns.
fn told(rows: &[BlameRow], class: LockClass, waiter: &str) -> Vec<(String, Doing, u64)> {
    let waits = |row: &&BlameRow| row.waiter.last().is_some_and(|last| last == waiter);
    let mine = rows.iter().filter(|row| row.class == class.name()).filter(waits);
    let name = |row: &BlameRow| {
        let through = row.through.as_ref().map_or(String::new(), |class| format!("{class} via "));
        through + row.holder.last().map_or("", String::as_str)
    };
    mine.map(|row| (name(row), row.doing, row.wait_ps / 1000)).collect()
}

/// Runs three CPUs that take one lock one after another.
pub(crate) fn convoy(config: SimConfig) -> Outcome {
    run_well(config, |script| {
        let zone = lock(LockClass::Zone);
        let starts =
            [(0, Func::RmqueueBulk), (1_000, Func::FreePcppagesBulk), (2_000, Func::ExitMmap)];
        for (cpu, (start, func)) in starts.into_iter().enumerate() {
            let zone = Rc::clone(&zone);
            script.spawn(cpu, move || {
                work(start);
                let _span = Span::<Sim>::enter(func);
                let held = zone.lock();
                work(5_000);
                drop(held);
            });
        }
    })
}

#[test]
fn a_convoy_of_three_is_blamed_exactly() {
    let outcome = convoy(exact(3));
    // CPU 0 locks from 0 to 15, works, and releases at 5020; CPU 1 holds from 85 later, 5105, to
    // 10110; CPU 2 from 10195.
    let of = |waiter| told(&outcome.blame.shares, LockClass::Zone, waiter);
    let work = |name: &str, ns| (name.to_owned(), Doing::Work, ns);
    let handover = |ns| (String::new(), Doing::Handover, ns);
    assert_eq!(of("free_pcppages_bulk"), [work("rmqueue_bulk", 4_020), handover(85)]);
    assert_eq!(
        of("exit_mmap"),
        [work("free_pcppages_bulk", 5_005), work("rmqueue_bulk", 3_020), handover(170)]
    );
    assert_eq!(of("rmqueue_bulk"), []);
}

#[test]
fn a_holder_that_waits_itself_is_followed_through() {
    let outcome = run_well(exact(3), |script| {
        let (outer, inner) = (lock(LockClass::Zone), lock(LockClass::Lruvec));
        let of_holder = Rc::clone(&inner);
        script.spawn(0, move || {
            let _span = Span::<Sim>::enter(Func::RmqueueBulk);
            let _held = of_holder.lock();
            work(5_000);
        });
        let of_waiter = Rc::clone(&outer);
        script.spawn(1, move || {
            let _span = Span::<Sim>::enter(Func::ExitMmap);
            let _held = outer.lock();
            work(985);
            let _inner = inner.lock();
            work(100);
        });
        script.spawn(2, move || {
            work(500);
            let _span = Span::<Sim>::enter(Func::FreePcppagesBulk);
            drop(of_waiter.lock());
        });
    });
    let of = |class, waiter| told(&outcome.blame.shares, class, waiter);
    let row = |name: &str, doing, ns| (name.to_owned(), doing, ns);
    // CPU 1 wants the inner lock at 1000; CPU 0 releases it at 5020; CPU 1 has it from 5105 and
    // releases the outer one at 5215.
    assert_eq!(
        of(LockClass::Lruvec, "exit_mmap"),
        [row("rmqueue_bulk", Doing::Work, 4_020), row("", Doing::Handover, 85)]
    );
    assert_eq!(
        of(LockClass::Zone, "free_pcppages_bulk"),
        [
            row("exit_mmap", Doing::Work, 610),
            row("lruvec via rmqueue_bulk", Doing::Work, 4_020),
            row("", Doing::Handover, 85),
            row("lruvec via ", Doing::Handover, 85),
        ]
    );
}

#[test]
fn lines_that_a_holder_waits_for_have_their_distance() {
    let mut config = exact(16);
    config.profile.topology = Topology { cpus: 16, smt: 2, cluster: 4, nodes: 2 };
    let line = &mut config.profile.costs.line;
    (line.smt_ps, line.node_ps, line.remote_ps, line.memory_ps) = (20_000, 40_000, 90_000, 70_000);
    let outcome = run_well(config, |script| {
        let zone = lock(LockClass::Zone);
        let of_holder = Rc::clone(&zone);
        for cpu in [1, 2, 4, 8] {
            script.spawn(cpu, move || Sim::touch(Line::LruLists(cpu as u32), Access::Write));
        }
        script.spawn(0, move || {
            work(1_000);
            let _span = Span::<Sim>::enter(Func::RmqueueBulk);
            let _held = of_holder.lock();
            work(100);
            [1, 2, 4, 8].iter().for_each(|&at| Sim::touch(Line::LruLists(at), Access::Write));
            Sim::touch(Line::Cold(NodeId::new(0)), Access::Read);
            work(500);
        });
        script.spawn(5, move || {
            work(1_020);
            let _span = Span::<Sim>::enter(Func::ExitMmap);
            drop(zone.lock());
        });
    });
    let told = told(&outcome.blame.shares, LockClass::Zone, "exit_mmap");
    let of = |doing| told.iter().find(|row| row.1 == doing).map(|row| row.2);
    let misses = [MissCore, MissCluster, MissNode, MissRemote, MissMemory];
    assert_eq!(misses.map(of), [20, 25, 40, 90, 70].map(Some), "{told:?}");
    assert!(told.iter().all(|row| row.1 == Doing::Handover || row.0 == "rmqueue_bulk"));
}

#[test]
fn waits_are_told_lock_by_lock() {
    let outcome = run_well(exact(4), |script| {
        let zone = |number| {
            let instance = LockInstance::Numbered(number);
            Rc::new(SpinLock::<Sim, ()>::named(LockClass::Zone, instance, ()))
        };
        let zones = [zone(0), zone(1)];
        for cpu in 0..4 {
            let zone = Rc::clone(&zones[usize::from(cpu == 3)]);
            script.spawn(cpu, move || {
                let _held = zone.lock();
                work(1_000);
            });
        }
        let other = lock(LockClass::Pte);
        let again = Rc::clone(&other);
        script.spawn(3, move || drop(other.lock()));
        script.spawn(2, move || drop(again.lock()));
    });
    let zone = outcome.blame.locks.iter().find(|row| row.class == "zone").expect("waits");
    assert_eq!((zone.lock.as_str(), zone.waits), ("zone 0", 2), "{:?}", outcome.blame.locks);
    let waited: u64 = outcome.blame.shares.iter().map(|row| row.wait_ps).sum();
    assert_eq!(outcome.blame.locks.iter().map(|row| row.wait_ps).sum::<u64>(), waited);
    assert!(outcome.blame.locks.iter().all(|row| row.lock != "zone 1"), "nothing waits for it");
}

const FUNCS: [Func; 4] =
    [Func::RmqueueBulk, Func::FreePcppagesBulk, Func::ExitMmap, Func::FolioBatchMoveLru];

/// Six CPUs take three locks in random order, one inside of another, some with interrupts off, some
/// by trying; timers and noise interrupt them.
fn random_run(seed: u64, policy: Policy, blame: bool) -> Outcome {
    random_run_of(SimConfig { seed, policy, blame, ..config(6) })
}

/// As above, on a machine with six CPUs.
pub(crate) fn random_run_of(config: SimConfig) -> Outcome {
    let seed = config.seed;
    let each = |ns| {
        let lengths = Lengths::Of([ns; 8]);
        Some(Disturbance { period_ns: 40_000, gaps: Gaps::Random, lengths })
    };
    let noise = Noise { stolen: each(3_000), irq_off: each(2_000) };
    let config = SimConfig { noise, ..config };
    run_well(config, |script| {
        let locks: Vec<Lock> = (0..3).map(|_| lock(LockClass::Other)).collect();
        let shared = Rc::clone(&locks[2]);
        *script.on_timer.borrow_mut() = Some(Box::new(move || {
            if let Some(_held) = shared.try_lock() {
                work(200);
            }
        }));
        for cpu in 0..6 {
            let locks = locks.clone();
            script.spawn(cpu, move || {
                let mut counter = 0;
                let mut draw = |below: u64| {
                    counter += 1;
                    random(seed, mmscale_arch::CpuId::new(cpu), counter) % below
                };
                for _ in 0..60 {
                    let _span = Span::<Sim>::enter(FUNCS[draw(4) as usize]);
                    let _irqs = (draw(2) == 0).then(IrqGuard::<Sim>::new);
                    let (first, second) = (draw(3) as usize, draw(3) as usize);
                    let held = locks[first].lock();
                    work(draw(2_000) as u32);
                    if second > first {
                        let _span = Span::<Sim>::enter(FUNCS[draw(4) as usize]);
                        let _inner = locks[second].lock();
                        work(draw(1_000) as u32);
                    }
                    work(draw(200) as u32);
                    drop(held);
                    work(draw(500) as u32);
                }
            });
        }
    })
}

#[test]
fn blame_adds_up_to_the_waits_and_changes_nothing() {
    for seed in 0..20 {
        let with = random_run(seed, Policy::Lazy, true);
        let mut sums = BTreeMap::new();
        for row in &with.blame.shares {
            *sums.entry(row.waiter.clone()).or_insert(0) += row.wait_ps;
        }
        let mut waited = 0;
        for row in with.locks.iter().filter(|row| row.wait_total_ns > 0) {
            let blamed = sums.remove(&row.path).unwrap_or(0);
            assert_eq!(blamed / 1000, row.wait_total_ns, "seed {seed}: {:?}", row.path);
            waited += row.wait_total_ns;
        }
        assert!(waited > 100_000 && sums.is_empty(), "seed {seed}: {waited} {sums:?}");
        let by_lock: u64 = with.blame.locks.iter().map(|row| row.wait_ps).sum();
        let by_share: u64 = with.blame.shares.iter().map(|row| row.wait_ps).sum();
        assert_eq!(by_lock, by_share, "seed {seed}");
        assert!(with.blame.shares.iter().any(|row| row.through.is_some()), "seed {seed}");
        assert!(with.blame.shares.iter().any(|row| row.doing == Doing::Stolen), "seed {seed}");
        let without = random_run(seed, Policy::Lazy, false);
        assert_eq!((with.fingerprint, &with.locks), (without.fingerprint, &without.locks));
        let naive = random_run(seed, Policy::Naive, true);
        assert_eq!(with.blame, naive.blame, "seed {seed}");
    }
}
