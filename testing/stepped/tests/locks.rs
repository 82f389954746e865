//! Sleeping locks and the queue of their spinners: which task gets a lock, step by step.

use mmscale_arch::sync::{
    HANDOFF_AFTER_NS, Mutex, Osq, READERS_AT_ONCE, ReadGuard, RwSem, RwsemPolicy, WriteGuard,
};
use mmscale_arch::{Cpu as _, LockClass, Machine as _, RawOsq as _, TaskId};
use mmscale_stepped::{self as stepped, Stepped};
use std::cell::{Cell, RefCell};

/// Makes a value that lives as long as the hooks of the machine.
fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// Runs `f` on another CPU.
fn on<R>(cpu: usize, f: impl FnOnce() -> R) -> R {
    let back = Stepped::cpu().index();
    stepped::set_cpu(cpu);
    let result = f();
    stepped::set_cpu(back);
    result
}

/// Calls `lock` on `cpu`, which calls `at_relax` in each turn of its wait.
fn lock(queue: &Osq<Stepped>, cpu: usize, at_relax: impl Fn() + 'static) -> bool {
    stepped::on_relax(at_relax);
    on(cpu, || queue.lock())
}

#[test]
fn a_spinner_that_must_switch_tasks_leaves_its_queue_from_any_place() {
    stepped::boot(4, 1000);
    let (queue, joined) = (leak(Osq::<Stepped>::new()), leak(Cell::new(false)));
    assert!(lock(queue, 0, || panic!("the queue was empty")));
    assert!(!lock(queue, 1, || stepped::set_need_resched(1, true)), "from the end");
    let from_the_middle = lock(queue, 2, || {
        if !joined.replace(true) {
            assert!(!on(3, || queue.join()), "behind CPU 2");
        }
        stepped::set_need_resched(2, true);
    });
    assert!(!from_the_middle);
    on(0, || queue.unlock());
    assert!(on(3, || queue.wait()), "it is behind CPU 0 now");
    on(3, || queue.unlock());
    assert!(lock(queue, 1, || panic!("the queue was empty")));
}

#[test]
fn a_spinner_that_is_at_the_head_by_now_does_not_leave() {
    stepped::boot(2, 1000);
    let queue = leak(Osq::<Stepped>::new());
    assert!(lock(queue, 0, || panic!("the queue was empty")));
    let at_head = lock(queue, 1, || {
        on(0, || queue.unlock());
        stepped::set_need_resched(1, true);
    });
    assert!(at_head);
    on(1, || queue.unlock());
    assert!(lock(queue, 0, || panic!("the queue was empty")));
}

/// A semaphore, and its holders.
struct World {
    sem: RwSem<Stepped, u32>,
    writer: RefCell<Option<WriteGuard<'static, Stepped, u32>>>,
    readers: RefCell<Vec<ReadGuard<'static, Stepped, u32>>>,
    step: Cell<u32>,
    /// The task of the writer.
    owner: TaskId,
}

impl World {
    /// Makes a semaphore that a writer on CPU 0 holds, whose task does not run any more.
    fn boot() -> &'static Self {
        Self::with_policy(RwsemPolicy::Stock)
    }
    fn with_policy(policy: RwsemPolicy) -> &'static Self {
        stepped::boot(4, 1000);
        let sem = RwSem::with_policy(policy, LockClass::Rwsem, 0);
        let (writer, readers) = (RefCell::default(), RefCell::default());
        let owner = Stepped::current();
        let world = leak(Self { sem, writer, readers, step: Cell::new(0), owner });
        *world.writer.borrow_mut() = Some(world.sem.write());
        stepped::set_task(TaskId::new(100));
        world
    }
    /// Whether a reader on `cpu` takes the semaphore without sleeping; if so, it keeps it.
    fn reads(&'static self, cpu: usize) -> bool {
        let guard = on(cpu, || self.sem.read_unless(|| true));
        guard.map(|guard| self.readers.borrow_mut().push(guard)).is_some()
    }
    /// The last reader releases it.
    fn reader_ends(&self) {
        let guard = self.readers.borrow_mut().pop();
        on(2, || drop(guard.expect("a reader holds it")));
    }
}

/// A writer was woken and does not run yet. One reader at a time may overtake it; after 4 ms none.
#[test]
fn readers_steal_a_free_semaphore_until_the_first_waiter_is_promised_it() {
    let world = World::boot();
    stepped::on_park(move || match world.step.replace(world.step.get() + 1) {
        0 => {
            assert!(!world.reads(2), "a writer holds it");
            let writer = world.writer.borrow_mut().take();
            on(0, || drop(writer));
            assert!(world.reads(2), "it is free");
            assert!(!world.reads(3), "a writer waits, and another reader holds it");
        }
        1 => {
            world.reader_ends();
            stepped::advance(HANDOFF_AFTER_NS + 1);
            assert!(!world.sem.is_promised() && world.reads(3), "nothing is promised yet");
        }
        2 => {
            assert!(world.sem.is_promised(), "the writer has found it taken after 4 ms");
            world.reader_ends();
            assert!(!world.reads(2) && world.sem.try_write().is_none(), "it is free and promised");
        }
        _ => panic!("the writer sleeps although the semaphore was promised to it"),
    });
    on(1, || *world.sem.write() += 1);
    assert_eq!(world.step.get(), 3);
    assert!(!world.sem.is_promised() && !world.sem.has_waiters() && world.reads(2));
    world.reader_ends();
    stepped::assert_quiet();
}

/// One reader more than a grant has waits for a writer. The writer leaves, and another reader comes
/// while the others of the grant hold the semaphore.
fn comes_next_to_a_grant(policy: RwsemPolicy) -> bool {
    const WAIT: u32 = READERS_AT_ONCE as u32 + 1;
    let world = World::with_policy(policy);
    let (over, came) = (leak(Cell::new(false)), leak(Cell::new(false)));
    let wait = move || {
        let step = world.step.replace(world.step.get() + 1);
        stepped::set_task(TaskId::new(1000 + step as usize));
        world.sem.read_unless(|| over.get()).is_some()
    };
    stepped::on_park(move || {
        if world.step.get() < WAIT {
            let is_left_over = world.step.get() == WAIT - 1;
            assert_eq!(wait(), !is_left_over || came.get());
            return;
        }
        let writer = world.writer.borrow_mut().take();
        on(0, || drop(writer));
        came.set(world.reads(2));
        over.set(true);
        Stepped::unpark(Stepped::current());
    });
    assert!(wait());
    if came.get() {
        world.reader_ends();
    }
    assert!(world.sem.try_write().is_some(), "all have left");
    came.get()
}

#[test]
fn a_reader_behind_others_lets_them_in_since_5_19_and_waits_with_them_before() {
    assert!(comes_next_to_a_grant(RwsemPolicy::Stock));
    assert!(!comes_next_to_a_grant(RwsemPolicy::FirstWakes));
}

/// Lets a reader hold the semaphore, which it releases in turn `turns` of a spinner. Turns take 1
/// us and are counted.
fn hold_for_turns(world: &'static World, turns: u32) -> &'static Cell<u32> {
    let passed = leak(Cell::new(0));
    assert!(world.reads(2));
    stepped::on_relax(move || {
        passed.set(passed.get() + 1);
        stepped::advance(1_000);
        if passed.get() == turns {
            world.reader_ends();
        }
    });
    passed
}

/// A writer spins for a reader for 10.5 us, and then sleeps.
#[test]
fn a_writer_spins_for_readers_and_sleeps_if_they_take_long() {
    let world = World::boot();
    let writer = world.writer.borrow_mut().take();
    on(0, || drop(writer));
    for after_a_sleep in [false, true] {
        let passed = hold_for_turns(world, 10);
        stepped::on_park(|| panic!("the reader released it in time"));
        on(1, || *world.sem.write() += 1);
        assert_eq!(passed.get(), 10);
        if !after_a_sleep {
            let passed = hold_for_turns(world, u32::MAX);
            stepped::on_park(move || {
                assert_eq!(passed.get(), 11);
                world.reader_ends();
            });
            on(1, || *world.sem.write() += 1);
        }
    }
    assert_eq!(world.sem.try_read().map(|count| *count), Some(3));
    stepped::assert_quiet();
}

#[test]
#[should_panic(expected = "the second writer sleeps without spinning")]
fn no_writer_spins_for_readers_after_one_has_without_success() {
    let world = World::boot();
    let writer = world.writer.borrow_mut().take();
    on(0, || drop(writer));
    let passed = hold_for_turns(world, u32::MAX);
    stepped::on_park(move || match world.step.replace(world.step.get() + 1) {
        0 => on(3, || *world.sem.write() += 1),
        _ if passed.get() == 11 => panic!("the second writer sleeps without spinning"),
        _ => panic!("the second writer spun"),
    });
    on(1, || *world.sem.write() += 1);
}

/// Readers that spin take the semaphore next to others although a writer waits, until it runs for
/// another reason after 4 ms.
#[test]
fn readers_that_spin_hold_it_for_as_long_as_they_overlap() {
    let world = World::with_policy(RwsemPolicy::ReadersSpin);
    stepped::on_park(move || match world.step.replace(world.step.get() + 1) {
        0 => {
            let writer = world.writer.borrow_mut().take();
            on(0, || drop(writer));
            assert!(world.reads(2), "it is free");
            for _ in 0..3 {
                assert!(world.reads(3), "another reader has it");
                stepped::advance(HANDOFF_AFTER_NS + 1);
                world.reader_ends();
            }
            // A wake-up that is not of the semaphore: now the writer looks.
            Stepped::unpark(TaskId::new(100));
        }
        1 => {
            assert!(world.sem.is_promised());
            stepped::on_relax(|| stepped::set_need_resched(3, true));
            assert!(!world.reads(3), "it spins until its CPU must switch tasks");
            world.reader_ends();
        }
        _ => panic!("the writer sleeps although the semaphore was promised to it"),
    });
    on(1, || *world.sem.write() += 1);
    assert_eq!(world.step.get(), 2);
    stepped::assert_quiet();
}

/// A reader that spins sees the writer leave, and shares the semaphore with readers that wait.
#[test]
fn a_reader_spins_for_a_writer_that_runs() {
    let world = World::with_policy(RwsemPolicy::ReadersSpin);
    stepped::on_park(|| panic!("the writer runs and releases it"));
    stepped::on_relax(move || {
        let writer = world.writer.borrow_mut().take();
        on(0, || drop(writer));
    });
    stepped::set_task(world.owner);
    assert!(Stepped::is_running(world.owner) && world.reads(1), "it has waited for the writer");
    world.reader_ends();
    stepped::assert_quiet();
}

/// Without handoff a first waiter can be overtaken by writers for ever; readers queue.
#[test]
fn without_handoff_only_writers_overtake_and_never_stop() {
    let world = World::with_policy(RwsemPolicy::NoHandoff);
    stepped::on_park(move || {
        let step = world.step.replace(world.step.get() + 1);
        let writer = world.writer.borrow_mut().take();
        on(0, || drop(writer));
        assert!(!world.reads(2), "a writer waits");
        stepped::advance(HANDOFF_AFTER_NS + 1);
        assert!(!world.sem.is_promised());
        if step < 3 {
            *world.writer.borrow_mut() = world.sem.try_write();
            assert!(world.writer.borrow().is_some(), "it is free");
        }
    });
    on(1, || *world.sem.write() += 1);
    assert_eq!(world.step.get(), 4);
    stepped::assert_quiet();
}

/// A writer that does not spin for readers sleeps as soon as it finds one.
#[test]
fn without_handoff_writers_do_not_spin_for_readers() {
    let world = World::with_policy(RwsemPolicy::NoHandoff);
    let writer = world.writer.borrow_mut().take();
    on(0, || drop(writer));
    let passed = hold_for_turns(world, u32::MAX);
    stepped::on_park(|| world.reader_ends());
    on(1, || *world.sem.write() += 1);
    assert_eq!(passed.get(), 0);
}

/// A task that was woken for a mutex and finds it taken again gets it next.
#[test]
fn a_waiter_that_was_overtaken_once_is_promised_the_mutex() {
    stepped::boot(4, 1000);
    let mutex = leak(Mutex::<Stepped, u32>::new(LockClass::Mutex, 0));
    let holder = leak(RefCell::new(Some(mutex.lock())));
    stepped::set_task(TaskId::new(100));
    let step = leak(Cell::new(0));
    stepped::on_park(move || match step.replace(step.get() + 1) {
        0 => {
            let first = holder.borrow_mut().take();
            on(0, || drop(first));
            *holder.borrow_mut() = on(2, || mutex.try_lock());
            assert!(holder.borrow().is_some(), "it is free until the waiter runs");
        }
        1 => {
            let thief = holder.borrow_mut().take();
            on(2, || drop(thief));
            assert!(on(3, || mutex.try_lock()).is_none(), "the waiter has it already");
        }
        _ => panic!("the waiter sleeps although it was given the mutex"),
    });
    on(1, || *mutex.lock() += 1);
    assert_eq!(step.get(), 2);
    assert_eq!(mutex.try_lock().map(|count| *count), Some(1));
}
