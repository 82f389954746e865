//! Drains, demand and hotplug, while CPUs are active.

use super::world::{ALL, ANON, GROUP, World, config, well};
use mmscale_arch::{CpuId, DataLine, LockClass, Machine as _, NodeId, Pfn};
use mmscale_mm::folio::FolioFlags;
use mmscale_mm::lru::{LruCounters, LruList, LruPolicy};
use mmscale_sim::{Outcome, Sim};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

fn lruvec_locks(outcome: &Outcome) -> u64 {
    let rows = outcome.locks.iter().filter(|row| row.class == LockClass::Lruvec.name());
    rows.map(|row| row.acquisitions).sum()
}

/// Each of `cpus` CPUs maps and unmaps one page `rounds` times, with the drain of a populate.
fn churn(policy: LruPolicy, cpus: usize, rounds: usize) -> (Outcome, LruCounters) {
    well(config(cpus, 1), policy, move |world| {
        for cpu in 1..cpus {
            world.spawn(cpu, move |world| {
                for _ in 0..rounds {
                    let pfn = world.fault(ANON);
                    world.memory().blanket_drain();
                    world.unmap(pfn);
                }
            });
        }
        world.wait_for_others();
    })
}

#[test]
fn populate_churn_takes_two_lruvec_locks_a_page_and_none_under_lazy() {
    let (rounds, cpus) = (200, 8);
    let pages = (rounds * (cpus - 1)) as u64;
    let verifying = lruvec_locks(&churn(LruPolicy::Stock, cpus, 0).0);
    for policy in ALL {
        let (outcome, counters) = churn(policy, cpus, rounds);
        let locks = lruvec_locks(&outcome) - verifying;
        if policy == LruPolicy::Lazy {
            assert_eq!((locks, counters.freed_pending, counters.add_batches), (0, pages, 0));
        } else {
            assert_eq!((locks, counters.added, counters.add_batches), (2 * pages, pages, pages));
        }
    }
}

/// The data of a lruvec follows its lock from CPU to CPU: the list heads when a folio is listed,
/// the sizes when it is listed and when it is taken off.
#[test]
fn the_lists_of_a_lruvec_are_lines_that_follow_its_lock() {
    let moves = |cpus: usize, line: &str| -> u64 {
        let (outcome, _) = churn(LruPolicy::Stock, cpus, 200);
        outcome.lines.iter().filter(|row| row.line == line).map(|row| row.moves).sum()
    };
    for line in [DataLine::LruLists, DataLine::LruSizes].map(DataLine::name) {
        let (alone, together) = (moves(2, line), moves(8, line));
        assert!(alone < 10 && together > 700, "{line}: {alone} and {together}");
    }
}

#[test]
fn a_drain_of_all_finds_what_every_cpu_has_gathered_and_latecomers_share_it() {
    for policy in ALL {
        let (_, counters) = well(config(8, 2), policy, move |world| {
            let folios = Rc::new(RefCell::new(Vec::new()));
            for cpu in 1..8 {
                let folios = Rc::clone(&folios);
                world.spawn(cpu, move |world| {
                    for _ in 0..5 {
                        let pfn = world.fault(ANON);
                        folios.borrow_mut().push(pfn);
                    }
                });
            }
            world.wait_for_others();
            assert_eq!(folios.borrow().len(), 35);
            for cpu in 1..8 {
                let folios = Rc::clone(&folios);
                world.spawn(cpu, move |world| {
                    world.memory().drain_all();
                    let folios = folios.borrow();
                    assert!(folios.iter().all(|&pfn| world.listed(pfn)), "{policy:?}");
                });
            }
            world.wait_for_others();
            folios.take().into_iter().for_each(|pfn| world.unmap(pfn));
        });
        let drains = counters.drains_of_all + counters.drains_shared;
        assert_eq!(drains, 7);
        assert!(counters.drains_shared >= 4, "{counters:?}");
    }
}

#[test]
fn without_batches_every_folio_is_listed_immediately() {
    for policy in ALL {
        well(config(8, 3), policy, move |world| {
            let off = Rc::new(Cell::new(false));
            for cpu in 1..8 {
                let off = Rc::clone(&off);
                world.spawn(cpu, move |world| {
                    for _ in 0..150 {
                        // Batches stay off until this program has ended.
                        let was_off = off.get();
                        let pfn = world.fault(ANON);
                        assert!(!was_off || world.listed(pfn), "{policy:?}");
                        Sim::user(1_000);
                        world.unmap(pfn);
                    }
                });
            }
            let early: Vec<_> = (0..7).map(|_| world.fault(ANON)).collect();
            Sim::user(30_000);
            let batches = world.memory().batches_off();
            off.set(true);
            assert!(early.iter().all(|&pfn| world.listed(pfn)));
            world.wait_for_others();
            assert_eq!(world.memory().verify().expect("it adds up").gathered, 0);
            drop(batches);
            early.into_iter().for_each(|pfn| world.unmap(pfn));
            let pfn = world.fault(ANON);
            assert!(!world.listed(pfn), "batches gather again");
            world.unmap(pfn);
        });
    }
}

/// A forced drain queues work only where something is gathered, as in Linux. The caller's own CPU
/// is drained without work.
#[test]
fn running_without_batches_asks_only_cpus_that_have_gathered_something() {
    for policy in ALL {
        let (_, counters) = well(config(8, 7), policy, move |world| {
            let folios = Rc::new(RefCell::new(vec![world.fault(ANON)]));
            let shelf = Rc::clone(&folios);
            world.spawn(3, move |world| {
                let pfn = world.fault(ANON);
                shelf.borrow_mut().push(pfn);
            });
            world.wait_for_others();
            for _ in 0..2 {
                drop(world.memory().batches_off());
                assert!(folios.borrow().iter().all(|&pfn| world.listed(pfn)), "{policy:?}");
            }
            folios.take().into_iter().for_each(|pfn| world.unmap(pfn));
        });
        assert_eq!((counters.drains_of_all, counters.cpus_drained), (2, 1), "{policy:?}");
    }
}

/// Each kind of batch makes its CPU one that needs a drain.
#[test]
fn a_drain_of_all_finds_every_kind_of_batch() {
    type Gather = fn(&World, Pfn);
    let kinds: [Gather; 4] = [
        |world, pfn| world.memory().activate(pfn),
        |world, pfn| world.memory().lazyfree(pfn),
        |world, pfn| world.memory().rotate(pfn),
        |world, pfn| {
            world.memory().activate(pfn);
            world.memory().drain();
            world.memory().deactivate(pfn);
        },
    ];
    for gather in kinds {
        let (_, counters) = well(config(4, 8), LruPolicy::Stock, move |world| {
            let pfn = world.fault(ANON);
            world.memory().drain();
            world.spawn(2, move |world| gather(world, pfn));
            world.wait_for_others();
            assert_eq!(world.memory().verify().expect("it adds up").gathered, 1);
            world.memory().drain_all();
            assert_eq!(world.memory().verify().expect("it adds up").gathered, 0);
            world.unmap(pfn);
        });
        assert_eq!(counters.cpus_drained, 1);
    }
}

/// Stocks of charges are returned by `drain_all_stock`, for a group at its limit, not by drains of
/// LRU batches.
#[test]
fn a_drain_of_all_leaves_stocks_of_charges() {
    well(config(4, 9), LruPolicy::Stock, |world| {
        world.spawn(2, |world| {
            let pfn = world.fault(ANON);
            world.unmap(pfn);
        });
        world.wait_for_others();
        let usage = || world.memory().groups.usage(GROUP);
        assert_eq!(usage(), 64, "the batch keeps the unmapped folio charged");
        world.memory().drain_all();
        assert_eq!(usage(), 63, "the stock of cpu2");
        world.memory().drain_stocks();
        assert_eq!(usage(), 0);
    });
}

#[test]
fn lazy_finds_a_folio_on_whichever_cpu_it_waits() {
    well(config(8, 4), LruPolicy::Lazy, |world| {
        let shelf = Rc::new(RefCell::new(Vec::new()));
        for cpu in 1..8 {
            let shelf = Rc::clone(&shelf);
            world.spawn(cpu, move |world| {
                for _ in 0..60 {
                    let pfn = world.fault(ANON);
                    // The shelf's own reference keeps the folio alive until it was checked.
                    world.memory().folios.get(pfn);
                    shelf.borrow_mut().push(pfn);
                    Sim::user(2_000);
                    world.unmap(pfn);
                }
            });
        }
        let mut seen = 0;
        while seen < 7 * 60 {
            let Some(pfn) = shelf.borrow_mut().pop() else {
                Sim::user(500);
                continue;
            };
            let memory = world.memory();
            if seen % 3 == 0 {
                assert!(memory.isolate(pfn), "no other task isolates");
                memory.putback(pfn);
            } else if seen % 3 == 1 {
                assert!(memory.demand(pfn));
            } else {
                memory.mlock(pfn);
                let word = memory.folios.word(pfn);
                assert!(word.has(FolioFlags::LRU | FolioFlags::UNEVICTABLE), "{word:?}");
            }
            memory.put(pfn);
            seen += 1;
        }
        world.wait_for_others();
    });
}

#[test]
fn locking_while_a_folio_waits_holds_under_every_policy() {
    for policy in ALL {
        well(config(4, 5), policy, move |world| {
            let folios: Rc<RefCell<Vec<Pfn>>> = Rc::default();
            let others = Rc::clone(&folios);
            world.spawn(1, move |world| {
                for _ in 0..40 {
                    let pfn = world.fault(ANON);
                    others.borrow_mut().push(pfn);
                    Sim::user(1_000);
                }
            });
            let mut locked = 0;
            while locked < 40 {
                let next = folios.borrow().get(locked).copied();
                match next {
                    Some(pfn) => {
                        world.memory().mlock(pfn);
                        locked += 1;
                    }
                    None => Sim::user(300),
                }
            }
            world.wait_for_others();
            world.memory().drain_all();
            let pages = (0..2).map(|node| {
                world.memory().list_pages(GROUP, NodeId::new(node), LruList::Unevictable)
            });
            assert_eq!(pages.sum::<u64>(), 40, "{policy:?}");
            folios.take().into_iter().for_each(|pfn| world.unmap(pfn));
        });
    }
}

#[test]
fn a_cpu_that_dies_with_full_batches_loses_nothing() {
    for policy in ALL {
        well(config(4, 6), policy, move |world| {
            for round in 0..3 {
                for cpu in 1..4 {
                    world.spawn(cpu, move |world| {
                        let mut kept: Vec<_> = (0..28).map(|_| world.fault(ANON)).collect();
                        let dead: Vec<_> = kept.drain(..14).collect();
                        dead.into_iter().for_each(|pfn| world.unmap(pfn));
                        kept.iter().for_each(|&pfn| world.memory().activate(pfn));
                        // The program outlives its CPU.
                        Sim::user(400_000);
                        kept.into_iter().for_each(|pfn| world.unmap(pfn));
                    });
                }
                Sim::user(200_000);
                let gone = CpuId::new(1 + round);
                assert_eq!(Sim::cpu_offline(gone), Ok(()));
                world.wait_for_others();
                assert_eq!(Sim::cpu_online(gone), Ok(()));
            }
        });
    }
}
