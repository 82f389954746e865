//! Starts all processors but the first, and runs work on all of them.

use crate::per_cpu::{self, MAX_CPUS};
use crate::{apic, interrupts};
use alloc::alloc::{Layout, alloc};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

unsafe extern "C" {
    static start_code: u8;
    static start_code_end: u8;
}

/// The page to which the code of a started processor is copied; `entry.s` has the same number.
pub(crate) const START_PAGE: u8 = 8;
const STACK_BYTES: usize = 64 << 10;
/// Polls of a processor that is to start, before the interrupt is sent again.
const PATIENCE: usize = 100_000_000;

/// The end of the stack of the processor that starts now.
#[unsafe(no_mangle)]
static started_stack: AtomicU64 = AtomicU64::new(0);
/// Processors that run.
static RUNNING: AtomicUsize = AtomicUsize::new(1);

/// The work that all processors do.
type Work<'a> = &'a (dyn Fn(usize) + Sync);

/// The work of this round; the number of the round, and how many processors are done with it.
struct Round {
    work: UnsafeCell<Option<Work<'static>>>,
    number: AtomicUsize,
    done: AtomicUsize,
}

// SAFETY: the first processor writes `work` while no other has work, and then increments `number`.
unsafe impl Sync for Round {}

static ROUND: Round =
    Round { work: UnsafeCell::new(None), number: AtomicUsize::new(0), done: AtomicUsize::new(0) };

/// Starts the processors with these APICs, one after the other, as numbers 1 and up.
pub(crate) fn start_others(apics: &[u8]) {
    let page = usize::from(START_PAGE) << 12;
    // SAFETY: the page is below 1 MiB, where nothing else of this kernel is; the code is in the
    // image.
    unsafe {
        let code = &raw const start_code;
        let bytes = (&raw const start_code_end).offset_from_unsigned(code);
        core::ptr::copy_nonoverlapping(code, page as *mut u8, bytes);
    }
    for (at, &target) in apics.iter().enumerate() {
        assert!(at + 1 < MAX_CPUS, "more than {MAX_CPUS} processors");
        let layout = Layout::from_size_align(STACK_BYTES, 4096).expect("a power of two");
        // SAFETY: the size is not 0.
        let stack = unsafe { alloc(layout) };
        assert!(!stack.is_null(), "no memory for the stack of processor {}", at + 1);
        // Pairs with the start itself: the processor reads it after the interrupt.
        started_stack.store(stack as u64 + STACK_BYTES as u64, Ordering::SeqCst);
        apic::send_init(target);
        let mut polls = 0_usize;
        // Pairs with the increment in `started_cpu`.
        while RUNNING.load(Ordering::Acquire) == at + 1 {
            if polls.is_multiple_of(PATIENCE) {
                apic::send_start_up(target, START_PAGE);
            }
            polls += 1;
            assert!(polls < 20 * PATIENCE, "the processor with APIC {target} does not start");
            core::hint::spin_loop();
        }
    }
}

/// The first function of a started processor.
#[unsafe(no_mangle)]
extern "C" fn started_cpu() -> ! {
    let cpu = RUNNING.load(Ordering::Relaxed);
    per_cpu::enter(cpu, apic::id());
    interrupts::turn_on();
    let mut round = ROUND.number.load(Ordering::Relaxed);
    // Pairs with the load in `start_others`.
    RUNNING.fetch_add(1, Ordering::Release);
    loop {
        // Pairs with the increment in `on_all`.
        while ROUND.number.load(Ordering::Acquire) == round {
            core::hint::spin_loop();
        }
        round += 1;
        // SAFETY: see `Round`: there is work until all are done with it.
        let work = unsafe { *ROUND.work.get() };
        work.expect("a round has work")(cpu);
        // Pairs with the load in `on_all`.
        ROUND.done.fetch_add(1, Ordering::Release);
    }
}

/// Runs `work` on all processors, with the number of each, until all are done.
pub(crate) fn on_all(work: Work<'_>) {
    // SAFETY: no processor has it any more when this function returns.
    let work = unsafe { core::mem::transmute::<Work<'_>, Work<'static>>(work) };
    let others = RUNNING.load(Ordering::Relaxed) - 1;
    ROUND.done.store(0, Ordering::Relaxed);
    // SAFETY: the others wait for the next number.
    unsafe { *ROUND.work.get() = Some(work) };
    // Pairs with the load in `started_cpu`.
    ROUND.number.fetch_add(1, Ordering::Release);
    work(0);
    // Pairs with the increment in `started_cpu`.
    while ROUND.done.load(Ordering::Acquire) != others {
        core::hint::spin_loop();
    }
}
