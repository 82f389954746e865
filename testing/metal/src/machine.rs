//! The computer as a machine of the memory manager (`Machine`).

use crate::cpu::Metal;
use crate::{clock, per_cpu, shadow, tasks};
use core::sync::atomic::{AtomicU64, Ordering};
use mmscale_arch::sync::Osq;
use mmscale_arch::{
    Asid, Cpu, CpuId, HotplugError, IoBusy, IoDone, Ipi, Machine, Order, PageIo, Pfn, TaskId,
    TaskSpec, Translation, VmaRange, Vpn,
};

const PAGE_BYTES: usize = 4096;
/// Timer interrupts a second, as many kernels have them.
const HZ: u32 = 250;

/// The bytes of a frame: memory is mapped to itself.
fn bytes(pfn: Pfn) -> *mut u8 {
    (pfn.index() * PAGE_BYTES) as *mut u8
}

/// An entry of a table.
fn entry(pfn: Pfn, index: usize) -> &'static AtomicU64 {
    assert!(index < PAGE_BYTES / 8, "entry {index} of a page table");
    // SAFETY: the frame is a table of the memory manager, used as such words alone until it ends.
    unsafe { &*bytes(pfn).cast::<AtomicU64>().add(index) }
}

// SAFETY: each task has its own number, and its processor knows which task it runs.
unsafe impl Machine for Metal {
    type Osq = Osq<Self>;

    fn in_interrupt() -> bool {
        per_cpu::own().in_interrupt.load(Ordering::Relaxed)
    }

    fn ipi_send(cpu: CpuId, reason: Ipi) {
        per_cpu::send(cpu, reason);
    }
    fn now_ns() -> u64 {
        clock::now_ns()
    }
    fn hz() -> u32 {
        HZ
    }
    fn timer_arm(deadline_ns: u64) {
        clock::arm(deadline_ns);
    }
    fn timer_cancel() {
        clock::cancel();
    }

    fn current() -> TaskId {
        tasks::current()
    }
    fn park() {
        tasks::park();
    }
    fn is_running(task: TaskId) -> bool {
        tasks::is_running(task)
    }
    fn spawn(spec: TaskSpec) -> TaskId {
        tasks::spawn(spec)
    }
    fn cond_resched() {
        tasks::cond_resched();
    }
    fn need_resched() -> bool {
        tasks::need_resched()
    }
    fn user(ns: u64) {
        let end_ns = clock::now_ns() + ns;
        while clock::now_ns() < end_ns {
            Self::relax();
            tasks::cond_resched();
        }
    }

    // The processors of this kernel stay online.
    fn cpu_offline(_: CpuId) -> Result<(), HotplugError> {
        Err(HotplugError::NotNow)
    }
    fn cpu_online(_: CpuId) -> Result<(), HotplugError> {
        Err(HotplugError::NotNow)
    }

    fn clear_block(pfn: Pfn, order: Order) {
        // SAFETY: the caller has the block.
        unsafe { bytes(pfn).write_bytes(0, order.pages() * PAGE_BYTES) };
    }
    fn copy_page(from: Pfn, to: Pfn) {
        // SAFETY: the caller has `to`, and `from` is mapped to programs at most.
        unsafe { bytes(to).copy_from_nonoverlapping(bytes(from), PAGE_BYTES) };
    }
    fn copy_shared_page(from: Pfn, to: Pfn) {
        for at in 0..PAGE_BYTES / 8 {
            entry(to, at).store(entry(from, at).load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
    fn write_stamp(pfn: Pfn, stamp: u64) {
        // Programs on other processors read it at the same time.
        entry(pfn, 0).store(stamp, Ordering::Relaxed);
    }
    fn read_stamp(pfn: Pfn) -> u64 {
        entry(pfn, 0).load(Ordering::Relaxed)
    }
    fn is_zero(pfn: Pfn) -> bool {
        (0..PAGE_BYTES / 8).all(|word| entry(pfn, word).load(Ordering::Relaxed) == 0)
    }

    // There is no swap device.
    fn io_submit(_: PageIo) -> Result<(), IoBusy> {
        Err(IoBusy)
    }
    fn io_done() -> Option<IoDone> {
        None
    }
    fn io_now(_: PageIo) -> bool {
        false
    }

    fn table_load(pfn: Pfn, index: usize) -> u64 {
        entry(pfn, index).load(Ordering::Relaxed)
    }
    fn table_store(pfn: Pfn, index: usize, value: u64) {
        // Pairs with the load in `table_peek`.
        entry(pfn, index).store(value, Ordering::Release);
    }
    fn table_peek(pfn: Pfn, index: usize) -> u64 {
        // Pairs with the stores and exchanges here.
        entry(pfn, index).load(Ordering::Acquire)
    }
    fn table_swap(pfn: Pfn, index: usize, value: u64) -> u64 {
        // Pairs with the load in `table_peek`.
        entry(pfn, index).swap(value, Ordering::AcqRel)
    }
    fn table_compare_exchange(pfn: Pfn, index: usize, current: u64, new: u64) -> Result<u64, u64> {
        // Pairs with the load in `table_peek`.
        let word = entry(pfn, index);
        word.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }
    fn table_drop(_: Pfn) {}

    fn tlb_load(asid: Option<Asid>) {
        if let Some(asid) = asid {
            tasks::set_space(asid.index());
        }
        shadow::load(asid);
    }
    fn tlb_lookup(asid: Asid, page: Vpn) -> Option<Translation> {
        shadow::lookup(asid, page)
    }
    fn tlb_fill(asid: Asid, page: Vpn, translation: Translation) {
        shadow::fill(asid, page, translation);
    }
    fn tlb_flush_local(asid: Asid, range: Option<VmaRange>) {
        shadow::flush(asid, range);
    }
}
