//! The rest of the lower waist: a machine that runs the whole memory manager.

use crate::{
    Asid, Cpu, CpuId, IoBusy, IoDone, LockClass, Order, PageIo, Pfn, RawOsq, TaskId, Translation,
    VmaRange, Vpn, Walked,
};

/// Why an inter-processor interrupt was sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Ipi {
    /// The target's call queue has functions to call.
    CallFunction,
    /// A grace period asks the target to report a quiescent state.
    RcuExpedited,
    /// A timer of the target was armed that expires before its one-shot timer.
    Timer,
    /// The swap device has finished requests of the target; no CPU sends this.
    Block,
    /// Another CPU is short of pages and asks the target to drain its page caches.
    DrainPages,
}

impl Ipi {
    /// The number of reasons; discriminants are below it.
    pub const COUNT: usize = 5;
}

/// Error of a hotplug operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HotplugError {
    /// There is no such CPU.
    NoSuchCpu,
    /// The CPU is in the requested state already, or another operation on it is in progress.
    NotNow,
    /// The CPU is the last one online.
    LastCpu,
}

/// How a task is scheduled. Machines run the highest priority first; real time before fair.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Priority {
    /// Shares its CPU with the other fair tasks, in time slices.
    Fair,
    /// Runs until it blocks; a larger number goes first.
    RealTime(u8),
}

/// Attributes of a new task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskSpec {
    /// The CPU it runs on. When that CPU goes offline the machine moves the task to another,
    /// unless `per_cpu`.
    pub cpu: CpuId,
    /// Bound to its CPU: it does not run while the CPU is offline.
    pub per_cpu: bool,
    /// The scheduling class.
    pub priority: Priority,
    /// The argument of [`Callbacks::task`].
    pub entry: TaskEntry,
}

/// The function of a task, as the owner of the callbacks numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskEntry(pub u64);

/// Functions that a machine calls. One value implements it for a whole machine and holds all state.
pub trait Callbacks {
    /// An inter-processor interrupt arrived on this CPU. Interrupts are off.
    fn ipi(&self, reason: Ipi);
    /// This CPU's one-shot timer expired. Interrupts are off.
    fn timer(&self);
    /// This CPU has nothing to run and is about to halt. Interrupts are off. The callback may arm
    /// or cancel timers for the idle period.
    fn idle_enter(&self);
    /// This CPU has something to run again, or an interrupt came. Interrupts are off. It is called
    /// before the interrupt's own callback.
    fn idle_exit(&self);
    /// This CPU switched from one task to another, or to idle: a quiescent state. Interrupts off.
    fn context_switch(&self);
    /// The body of a task; the task ends when it returns.
    fn task(&self, entry: TaskEntry);
    /// This CPU is about to go offline, in idle; interrupts are off. Returns `false` if it may not
    /// yet, as an interrupt to it is pending; the machine calls it again after that interrupt.
    /// After `true` the CPU either stops, or leaves idle ([`Callbacks::idle_exit`]) and the machine
    /// calls it again.
    fn cpu_dying(&self) -> bool;
    /// `cpu` is about to go offline: it is out of the online mask already, but still runs. Called
    /// in a task on another CPU; may sleep. Last chance to stop work that runs on its behalf.
    fn cpu_down_prepare(&self, cpu: CpuId);
    /// `cpu` is offline: called in the same task, to take over the state that it left.
    fn cpu_dead(&self, cpu: CpuId);
    /// `cpu` runs and is in the online mask. Called in a task on any CPU.
    fn cpu_online(&self, cpu: CpuId);
}

/// A hold of a sleeping lock, as a machine counts it: returned by [`Machine::lock_taken`], and
/// passed back to [`Machine::lock_released`]. Only the machine knows what the fields mean.
#[derive(Clone, Copy, Default, Debug)]
pub struct LockHold {
    /// Where the hold is counted.
    pub row: u32,
    /// When it began, by [`Machine::wait_clock`].
    pub since: u64,
}

/// Function that invalidates the translations of an address space on all CPUs, those of a range or
/// all; costs included.
pub type Broadcast = fn(Asid, Option<VmaRange>);

/// The interface that the memory manager requires of a machine, in addition to that of each
/// [`Cpu`].
///
/// All functions are called on a CPU of the machine, in one of the contexts of the crate's table.
///
/// # Safety
/// [`Machine::current`] returns the task that calls it, and returns that number to no other task
/// until the task has ended. Data of one task ([`Inside`](crate::sync::Inside)) depends on it.
pub unsafe trait Machine: Cpu {
    /// Queue of CPUs that spin for a sleeping lock.
    type Osq: RawOsq;

    /// Whether the caller runs in an interrupt.
    fn in_interrupt() -> bool;

    // -- Cross-CPU calls, time.

    /// Sends `reason` to `cpu`, whose [`Callbacks::ipi`] runs when its interrupts are on. Sending
    /// the same reason again before it was delivered may merge the two.
    fn ipi_send(cpu: CpuId, reason: Ipi);
    /// Monotonic time in ns since the machine started; the same on all CPUs.
    fn now_ns() -> u64;
    /// Timer interrupts a second while a CPU is busy: the unit of the timer wheel.
    fn hz() -> u32;
    /// Arms this CPU's one-shot timer for `deadline_ns`, in place of an earlier arming.
    fn timer_arm(deadline_ns: u64);
    /// Disarms this CPU's timer.
    fn timer_cancel();

    // -- Tasks.

    /// The calling task; in an interrupt, the interrupted task.
    fn current() -> TaskId;
    /// Blocks the calling task until it is unparked; returns immediately if it was unparked since
    /// its last park. May also return early: callers check their condition in a loop.
    fn park();
    /// Whether `task` is running on a CPU now; a hint for optimistic spinning.
    fn is_running(task: TaskId) -> bool;
    /// Makes a new task.
    fn spawn(spec: TaskSpec) -> TaskId;
    /// Yields to a waiting task if it should run first. The caller holds no lock.
    fn cond_resched();

    /// Whether this CPU is to switch tasks as soon as preemption is on (`TIF_NEED_RESCHED`): a more
    /// urgent task waits for it, or the running task has used up its time slice while another
    /// waits. A task that spins with preemption off gives up then. A hint; a machine may always
    /// return `false`.
    fn need_resched() -> bool {
        false
    }

    /// The calling task computes for `ns` of its own CPU time without using the memory manager.
    /// Interrupts and preemption are on. A machine in virtual time does not cut this into pieces:
    /// the CPU waits, as an idle one does, until the time is used up or an interrupt arrives, is
    /// interrupted exactly then, and goes on with what is left afterwards (other tasks' time on
    /// the CPU does not count). So a second of it costs the host no more than its interrupts.
    fn user(ns: u64);

    // -- Statistics of sleeping locks. These functions cost no time and wait for no turn. A machine
    // without such statistics keeps the defaults.

    /// Returns the time in the unit in which this machine counts waits and holds.
    #[inline]
    fn wait_clock() -> u64 {
        0
    }
    /// Counts that the calling task has taken a sleeping lock of `class`. `since`: when it found
    /// the lock taken, by [`Machine::wait_clock`]; `None` if it did not.
    #[inline]
    fn lock_taken(_class: LockClass, _since: Option<u64>) -> LockHold {
        LockHold::default()
    }
    /// Counts that a task is about to release a sleeping lock.
    #[inline]
    fn lock_released(_hold: LockHold) {}

    // -- CPU hotplug, called in a task that is not bound to `cpu`. Sleeps.

    /// Takes `cpu` out of the online mask, calls [`Callbacks::cpu_down_prepare`], moves its tasks
    /// (those not `per_cpu`) away, stops it, calls [`Callbacks::cpu_dead`].
    fn cpu_offline(cpu: CpuId) -> Result<(), HotplugError>;
    /// Starts `cpu` again, puts it into the online mask, calls [`Callbacks::cpu_online`].
    fn cpu_online(cpu: CpuId) -> Result<(), HotplugError>;

    // -- Bytes behind frames.

    /// Clears the `order` block at `pfn`, for real where there is memory; costs included. A frame
    /// that is to be a page table has 512 entries of 0 then.
    fn clear_block(pfn: Pfn, order: Order);
    /// Copies a frame's bytes into another, for real where there is memory; costs included.
    fn copy_page(from: Pfn, to: Pfn);
    /// Copies a frame's bytes into another one as [`Machine::copy_page`] does, while programs may
    /// write to both.
    fn copy_shared_page(from: Pfn, to: Pfn) {
        Self::copy_page(from, to);
    }
    /// Writes a stamp into the first bytes of a frame.
    fn write_stamp(pfn: Pfn, stamp: u64);
    /// Reads the stamp; 0 after a clear.
    fn read_stamp(pfn: Pfn) -> u64;

    /// Whether every byte of a frame is 0. Costs nothing by itself.
    fn is_zero(pfn: Pfn) -> bool;

    // -- The swap device: blocks of a page each, numbered from 0, without a limit. A block that was
    // never written has zeros. These functions charge only the device's time.

    /// Submits a request to the device; preemption is off. Never waits: the device reads or writes
    /// the frame at any time until it has finished, and then interrupts this CPU with
    /// [`Ipi::Block`]. One interrupt may report many requests. A CPU goes offline only when it has
    /// been interrupted for all of its requests.
    fn io_submit(io: PageIo) -> Result<(), IoBusy>;
    /// Returns a completed request of this CPU, or of one that is offline. Preemption is off. A
    /// read has filled its frame.
    fn io_done() -> Option<IoDone>;
    /// Reads or writes a block synchronously, in the caller's own time and without an interrupt, as
    /// for a device in memory. Returns `false` if that failed.
    fn io_now(io: PageIo) -> bool;

    // -- Page tables: frames of the memory manager's own, 512 words of 64 bits each. These
    // functions charge no cost. The holder of a table's lock loads and stores entries. The hardware
    // reads tables without the lock, and sets bits in entries that are present. So a present entry
    // is changed with `table_swap` or `table_compare_exchange` only, also under the lock;
    // `table_store` fills entries that are not present.

    /// Returns entry `index` of the table at `pfn`. The caller holds its lock.
    fn table_load(pfn: Pfn, index: usize) -> u64;
    /// Fills an entry that is not present. The caller holds the table's lock. Earlier writes are
    /// visible to every CPU that sees the entry.
    fn table_store(pfn: Pfn, index: usize, value: u64);
    /// Reads an entry as the hardware does, without the lock: a synchronised operation.
    fn table_peek(pfn: Pfn, index: usize) -> u64;
    /// Finds the first entry of a table among `indices` that is not empty, as the hardware reads
    /// it: one synchronised operation if the machine supports that, or one for each entry.
    #[inline]
    fn table_scan(pfn: Pfn, mut indices: core::ops::Range<usize>) -> Option<(usize, u64)> {
        indices.find_map(|index| {
            let word = Self::table_peek(pfn, index);
            (word != 0).then_some((index, word))
        })
    }
    /// Walks page tables as the hardware does: reads entry `path[0]` of the root. While `down`
    /// returns a table for the entry that was read, reads the entry of that table at the next index
    /// of `path`, which is not empty. A walk is one synchronised operation if the machine supports
    /// that, or one for each entry.
    #[inline]
    fn table_walk(root: Pfn, path: &[usize], down: impl Fn(u64) -> Option<Pfn>) -> Walked {
        Walked::read(root, path, down, Self::table_peek)
    }
    /// Writes an entry and returns the previous one: a synchronised operation.
    fn table_swap(pfn: Pfn, index: usize, value: u64) -> u64;
    /// Writes `new` if the entry is `current`. Returns the previous entry: `Ok` if `new` was
    /// written. A synchronised operation.
    fn table_compare_exchange(pfn: Pfn, index: usize, current: u64, new: u64) -> Result<u64, u64>;
    /// The frame is no longer a table; its content is lost.
    fn table_drop(pfn: Pfn);

    // -- TLBs.

    /// Returns the function that invalidates translations on every CPU without an interrupt;
    /// `None` if this machine has no such instruction.
    #[inline]
    fn tlb_broadcast() -> Option<Broadcast> {
        None
    }
    /// Returns how many address spaces may have their translations invalidated by
    /// [`Machine::tlb_broadcast`] at a time; `None`: all.
    #[inline]
    fn tlb_broadcast_spaces() -> Option<u32> {
        None
    }
    /// Whether there is a [`Machine::tlb_broadcast`].
    #[inline]
    fn has_tlb_broadcast() -> bool {
        Self::tlb_broadcast().is_some()
    }
    /// Loads the address space `asid` on this CPU; `None`: no address space. Translations of other
    /// address spaces stay in the TLB.
    fn tlb_load(asid: Option<Asid>);
    /// Looks up the translation of `page` in this CPU's TLB. Interrupts are off.
    fn tlb_lookup(asid: Asid, page: Vpn) -> Option<Translation>;
    /// Stores the translation of `page` in this CPU's TLB, in place of an older one. Interrupts
    /// have been off since before the tables were read, and with [`Machine::has_tlb_broadcast`] no
    /// time has passed since then.
    fn tlb_fill(asid: Asid, page: Vpn, translation: Translation);
    /// Invalidates translations of `asid` in this CPU's TLB: those of `range`, or all.
    fn tlb_flush_local(asid: Asid, range: Option<VmaRange>);
}
