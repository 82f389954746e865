//! Threads as CPUs, with interrupts to drain: each test has a computer of its own.
//!
//! A CPU is *inside* while its preemption count is not 0. A request to drain runs immediately, in
//! the target's name, if that CPU is outside; else when it leaves.

use mmscale_arch::bare::{Bare, BareCpu};
use mmscale_arch::{CpuId, IrqState};
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, MemoryMap};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

/// CPUs of each computer.
pub(crate) const CPUS: usize = 4;

/// The allocator of a computer whose CPUs have interrupts, or else share their caches.
pub(crate) type Frames<const SHARED: bool> = FrameAllocator<BareCpu<Threads<SHARED>>>;

/// Values of [`Cpu::state`].
const OUTSIDE: u32 = 0;
const INSIDE: u32 = 1;
/// Another CPU runs its handler in its name.
const BORROWED: u32 = 2;

#[derive(Default)]
struct Cpu {
    state: AtomicU32,
    is_requested: AtomicBool,
}

struct Computer {
    cpus: [Cpu; CPUS],
    /// Handles a request on the CPU that the thread is.
    drain: Box<dyn Fn() + Send + Sync>,
}

thread_local! {
    static COMPUTER: RefCell<Option<Arc<Computer>>> = const { RefCell::new(None) };
    static CPU: Cell<usize> = const { Cell::new(0) };
    static PINNED: Cell<u32> = const { Cell::new(0) };
    static IRQ_ON: Cell<bool> = const { Cell::new(true) };
}

/// The CPUs of all computers, as a tag type: with interrupts, or else with caches that they share.
pub(crate) struct Threads<const SHARED: bool>;

fn with_computer<R>(run: impl FnOnce(&Computer) -> R) -> Option<R> {
    COMPUTER.with_borrow(|computer| computer.as_deref().map(run))
}

/// Runs the handler of a request as the CPU that the thread is now.
fn drain(computer: &Computer) {
    let irq_on = IRQ_ON.replace(false);
    (computer.drain)();
    IRQ_ON.set(irq_on);
}

// SAFETY: threads of one computer are different CPUs. A thread takes another's number only while
// that CPU is outside, and keeps it outside until it has its own number again.
unsafe impl<const SHARED: bool> Bare for Threads<SHARED> {
    const SHARED_CACHES: bool = SHARED;

    fn cpu() -> CpuId {
        CpuId::new(CPU.get())
    }
    fn cpus() -> usize {
        CPUS
    }
    fn preempt_disable() {
        PINNED.set(PINNED.get() + 1);
        if PINNED.get() > 1 {
            return;
        }
        with_computer(|computer| {
            let state = &computer.cpus[CPU.get()].state;
            // Pairs with the stores of `OUTSIDE`.
            while state
                .compare_exchange(OUTSIDE, INSIDE, Ordering::SeqCst, Ordering::Relaxed)
                .is_err()
            {
                thread::yield_now();
            }
        });
    }
    fn preempt_enable() {
        if PINNED.get() > 1 {
            PINNED.set(PINNED.get() - 1);
            return;
        }
        with_computer(|computer| {
            let own = &computer.cpus[CPU.get()];
            loop {
                while own.is_requested.swap(false, Ordering::SeqCst) {
                    drain(computer);
                }
                // Pairs with the exchanges. A request that came before it is seen after it.
                own.state.store(OUTSIDE, Ordering::SeqCst);
                let again = own.is_requested.load(Ordering::SeqCst)
                    && own
                        .state
                        .compare_exchange(OUTSIDE, INSIDE, Ordering::SeqCst, Ordering::Relaxed)
                        .is_ok();
                if !again {
                    break;
                }
            }
        });
        PINNED.set(0);
    }
    fn irq_save() -> IrqState {
        IrqState(IRQ_ON.replace(false))
    }
    fn irq_restore(state: IrqState) {
        IRQ_ON.set(state.0);
    }
    fn relax() {
        thread::yield_now();
    }
    fn request_drain(cpu: CpuId) -> bool {
        if SHARED {
            return false;
        }
        with_computer(|computer| {
            let target = &computer.cpus[cpu.index()];
            target.is_requested.store(true, Ordering::SeqCst);
            let outside = target.state.compare_exchange(
                OUTSIDE,
                BORROWED,
                Ordering::SeqCst,
                Ordering::Relaxed,
            );
            if outside.is_ok() {
                let (own, pinned) = (CPU.replace(cpu.index()), PINNED.replace(1));
                while target.is_requested.swap(false, Ordering::SeqCst) {
                    drain(computer);
                }
                CPU.set(own);
                PINNED.set(pinned);
                target.state.store(OUTSIDE, Ordering::SeqCst);
            }
        });
        true
    }
}

/// A computer of a test.
pub(crate) struct Machine<const SHARED: bool> {
    computer: Arc<Computer>,
    frames: Arc<Frames<SHARED>>,
}

impl<const SHARED: bool> Machine<SHARED> {
    /// A computer with `frames` frames, all free. Panics if the configuration is invalid.
    pub(crate) fn new(frames: usize, config: AllocConfig) -> Self {
        let map = MemoryMap::single(frames as u32);
        let frames = Arc::new(Frames::new(&map, config).expect("a valid configuration"));
        let drained = Arc::clone(&frames);
        let drain = Box::new(move || drained.drain_ipi());
        Self { computer: Arc::new(Computer { cpus: Default::default(), drain }), frames }
    }
    /// The allocator, for the calling thread as CPU 0.
    pub(crate) fn frames(&self) -> &Frames<SHARED> {
        self.become_cpu(0);
        &self.frames
    }
    fn become_cpu(&self, cpu: usize) {
        COMPUTER.set(Some(Arc::clone(&self.computer)));
        CPU.set(cpu);
    }
    /// Runs `run` on the first `cpus` CPUs at the same time; returns the results.
    pub(crate) fn on_each<R: Send>(
        &self,
        cpus: usize,
        run: impl Fn(&Frames<SHARED>, usize) -> R + Sync,
    ) -> Vec<R> {
        let (run, barrier) = (&run, &Barrier::new(cpus));
        thread::scope(|scope| {
            let start = |cpu| {
                scope.spawn(move || {
                    self.become_cpu(cpu);
                    barrier.wait();
                    let result = run(&self.frames, cpu);
                    assert_eq!((PINNED.get(), IRQ_ON.get()), (0, true), "a guard is left");
                    result
                })
            };
            let threads: Vec<_> = (0..cpus).map(start).collect();
            threads.into_iter().map(|cpu| cpu.join().expect("the CPU's work is done")).collect()
        })
    }
}
