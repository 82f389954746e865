//! Memory accesses of programs: loads and stores of the processor, at the addresses of the calling
//! process.
//!
//! An address whose translation is not in the hardware's tables faults. The handler makes the
//! access through the memory manager, which finds or makes the page and fills the tables; then
//! the instruction runs again.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use mmscale_kernel::Os;
use mmscale_system::{Addr, System as _};

/// The result of `load_word` and `store_word`.
#[repr(C)]
struct Accessed {
    word: u64,
    done: u64,
}

unsafe extern "C" {
    fn load_word(address: u64) -> Accessed;
    fn store_word(address: u64, word: u64) -> Accessed;
    fn access_failed();
}

/// The system whose programs run.
static OS: AtomicPtr<Os> = AtomicPtr::new(core::ptr::null_mut());
/// Page faults.
static FAULTS: AtomicU64 = AtomicU64::new(0);

/// Makes the faults of programs faults of `os`, while `run` runs.
pub(crate) fn with_system<R>(os: &Os, run: impl FnOnce() -> R) -> R {
    // Pairs with the load in `fault`.
    OS.store(core::ptr::from_ref(os).cast_mut(), Ordering::Release);
    let result = run();
    OS.store(core::ptr::null_mut(), Ordering::Release);
    result
}

/// Reads the first word of a page; `None`: the process may not.
pub(crate) fn read(page: Addr) -> Option<u64> {
    // SAFETY: a load that faults for good ends in `access_failed`.
    let accessed = unsafe { load_word(page.0) };
    (accessed.done != 0).then_some(accessed.word)
}

/// Writes the first word of a page; returns whether the process may.
pub(crate) fn write(page: Addr, word: u64) -> bool {
    // SAFETY: the store changes memory of the process alone; one that faults for good ends in
    // `access_failed`.
    unsafe { store_word(page.0, word) }.done != 0
}

/// The number of page faults so far.
pub(crate) fn faults() -> u64 {
    FAULTS.load(Ordering::Relaxed)
}

/// Whether the instruction at `rip` is such a load or store.
pub(crate) fn is_access(rip: u64) -> bool {
    rip == load_word as *const () as u64 || rip == store_word as *const () as u64
}

/// Handles a page fault of such an instruction at `address`; `written`: the word that it writes.
/// Returns where the program goes on, if not at the instruction.
pub(crate) fn fault(address: u64, written: Option<u64>) -> Option<u64> {
    FAULTS.fetch_add(1, Ordering::Relaxed);
    // Pairs with the store in `with_system`. SAFETY: programs run only while it is there.
    let os = unsafe { OS.load(Ordering::Acquire).as_ref() }.expect("a program of a system faults");
    let page = Addr(address);
    let done = match written {
        Some(word) => os.write(page, word),
        None => os.read(page).map(drop),
    };
    done.is_err().then_some(access_failed as *const () as u64)
}
