//! The rest of the lower waist: a machine that runs the whole memory manager.

use crate::{
    Asid, Cpu, CpuId, IoBusy, IoDone, Order, PageIo, Pfn, TaskId, Translation, VmaRange, Vpn,
    Walked,
};

/// Why an inter-processor interrupt was sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Ipi {
    /// Functions to call stand in the target's call queue.
    CallFunction,
    /// A grace period wants the target to report a quiescent state.
    RcuExpedited,
    /// A timer of the target was armed that comes before everything its one-shot is armed for.
    Timer,
    /// The swap device has finished requests of the target; no CPU sends this.
    Block,
    /// Another CPU is short of pages and asks for those in the caches of the target.
    DrainPages,
}

impl Ipi {
    /// The number of reasons; discriminants are below it.
    pub const COUNT: usize = 5;
}

/// Why a CPU was not taken offline or online.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HotplugError {
    /// There is no such CPU.
    NoSuchCpu,
    /// It is in the asked state already, or another hotplug operation is under way on it.
    NotNow,
    /// It is the last CPU online.
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

/// What a new task is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskSpec {
    /// The CPU it runs on. When that CPU goes away the machine moves it to another, unless
    /// `per_cpu`.
    pub cpu: CpuId,
    /// Bound to its CPU for good: it is not run while the CPU is offline.
    pub per_cpu: bool,
    /// How it is scheduled.
    pub priority: Priority,
    /// What [`Callbacks::task`] gets.
    pub entry: TaskEntry,
}

/// What a task does, as the owner of the callbacks numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskEntry(pub u64);

/// What a machine calls. One value implements it for a whole machine and holds all state.
pub trait Callbacks {
    /// An inter-processor interrupt arrived on this CPU. Interrupts are off.
    fn ipi(&self, reason: Ipi);
    /// This CPU's one-shot timer went off. Interrupts are off.
    fn timer(&self);
    /// This CPU has nothing to run and is about to stop. Interrupts are off. Timers may be armed
    /// or cancelled for the time of the rest.
    fn idle_enter(&self);
    /// This CPU has something to run again, or an interrupt came. Interrupts are off. It comes
    /// before the interrupt's own callback.
    fn idle_exit(&self);
    /// This CPU switched from one task to another, or to idle: a quiescent state. Interrupts off.
    fn context_switch(&self);
    /// The body of a task; when it returns the task is over.
    fn task(&self, entry: TaskEntry);
    /// This CPU is about to stop for good, in idle; interrupts are off. `false`: it may not yet, as
    /// an interrupt is on its way to it; it is asked again after that one. After `true` it either
    /// stops, or leaves idle ([`Callbacks::idle_exit`]) and is asked again.
    fn cpu_dying(&self) -> bool;
    /// `cpu` is about to go away; called in a task on another CPU, may sleep. Last chance to stop
    /// what runs on its behalf; `cpu` is out of the online mask already, but still runs.
    fn cpu_down_prepare(&self, cpu: CpuId);
    /// `cpu` has stopped for good: called in the same task, to take over what it left.
    fn cpu_dead(&self, cpu: CpuId);
    /// `cpu` runs and is in the online mask; called in a task on any CPU.
    fn cpu_online(&self, cpu: CpuId);
}

/// Invalidates the translations of an address space on all CPUs, those of a range or all; costs
/// included.
pub type Broadcast = fn(Asid, Option<VmaRange>);

/// What the memory manager asks of a machine, besides what it asks of each [`Cpu`].
///
/// All functions are called on a CPU of the machine, in one of the contexts of the crate's table.
///
/// # Safety
/// [`Machine::current`] names the task that calls it, and no other task for as long as that one is
/// not over. What a task keeps for itself ([`Inside`](crate::sync::Inside)) rests on it.
pub unsafe trait Machine: Cpu {
    /// Whether this runs in an interrupt.
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

    /// The task this runs in; in an interrupt, the interrupted one.
    fn current() -> TaskId;
    /// Blocks the calling task until it is unparked; returns immediately if it was unparked since
    /// its last park. May also return early: callers check their condition in a loop.
    fn park();
    /// Whether `task` is running on a CPU now; a hint for optimistic spinning.
    fn is_running(task: TaskId) -> bool;
    /// Makes a new task.
    fn spawn(spec: TaskSpec) -> TaskId;
    /// Lets a waiting task run, if there is one that should. Nothing is held.
    fn cond_resched();

    /// Returns whether a task of at least the same priority waits for this CPU: a task that spins
    /// with preemption off gives up then. A hint; a machine may always return `false`.
    fn need_resched() -> bool {
        false
    }

    /// The calling task computes for `ns` of its own CPU time without using the memory manager.
    /// Interrupts and preemption are on. A machine in virtual time does not cut this into pieces:
    /// the CPU waits, as an idle one does, until the time is used up or an interrupt arrives, is
    /// interrupted exactly then, and goes on with what is left afterwards (other tasks' time on
    /// the CPU does not count). So a second of it costs the host no more than its interrupts.
    fn user(ns: u64);

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
    /// Writes a stamp into the first bytes of a frame.
    fn write_stamp(pfn: Pfn, stamp: u64);
    /// Reads the stamp back; 0 after a clear.
    fn read_stamp(pfn: Pfn) -> u64;

    /// Whether every byte of a frame is 0. Costs nothing by itself.
    fn is_zero(pfn: Pfn) -> bool;

    // -- The swap device: blocks of a page each, numbered from 0, without a limit. The content of a
    // block that was never written is undefined. Only the device's time costs anything by itself.

    /// Hands a request to the device; preemption is off. Never waits: the device reads or writes
    /// the frame by itself, at any time until it has finished, and then interrupts this CPU with
    /// [`Ipi::Block`]. One interrupt may stand for many requests. A CPU that goes away stops only
    /// when it has been interrupted for all of its requests.
    fn io_submit(io: PageIo) -> Result<(), IoBusy>;
    /// Takes a request back that has finished: of this CPU, or of one that is offline. Preemption
    /// is off. A read has filled its frame by then.
    fn io_done() -> Option<IoDone>;
    /// Reads or writes a block synchronously, in the caller's own time and without an interrupt, as
    /// where the device is memory; `false`: it has failed.
    fn io_now(io: PageIo) -> bool;

    // -- Page tables: the 512 words of 64 bits of a frame of the memory manager's own. None of
    // these costs anything by itself. The holder of a table's lock loads and stores. The hardware
    // reads tables without it, and sets bits in entries that are present: so an entry that is
    // present is changed by `table_swap` or `table_compare_exchange` only, under the lock too, and
    // `table_store` fills entries that are not.

    /// Returns entry `index` of the table at `pfn`. The caller holds its lock.
    fn table_load(pfn: Pfn, index: usize) -> u64;
    /// Fills an entry that is not present. The caller holds the table's lock. Earlier writes are
    /// visible to every CPU that sees the entry.
    fn table_store(pfn: Pfn, index: usize, value: u64);
    /// An entry as the hardware reads it, without the lock: a synchronised operation.
    fn table_peek(pfn: Pfn, index: usize) -> u64;
    /// The first entry of a table among `indices` that is not empty, as the hardware reads it: one
    /// synchronised operation where the machine can, or one for each entry.
    #[inline]
    fn table_scan(pfn: Pfn, mut indices: core::ops::Range<usize>) -> Option<(usize, u64)> {
        indices.find_map(|index| {
            let word = Self::table_peek(pfn, index);
            (word != 0).then_some((index, word))
        })
    }
    /// Reads entries as the hardware does on its way down: that of the root at `path[0]`, and as
    /// long as `down` names a table for what it finds, that table's at the next index of `path`,
    /// which is not empty. All at one time where the machine can: a walk is one synchronised
    /// operation, or one for each entry.
    #[inline]
    fn table_walk(root: Pfn, path: &[usize], down: impl Fn(u64) -> Option<Pfn>) -> Walked {
        Walked::read(root, path, down, Self::table_peek)
    }
    /// Writes an entry and returns what was there: a synchronised operation.
    fn table_swap(pfn: Pfn, index: usize, value: u64) -> u64;
    /// Writes `new` if `current` is there; returns what was there, as `Ok` if it was `current`: a
    /// synchronised operation.
    fn table_compare_exchange(pfn: Pfn, index: usize, current: u64, new: u64) -> Result<u64, u64>;
    /// The frame is no table any more; what stood in it is gone.
    fn table_drop(pfn: Pfn);

    // -- Translations that CPUs keep.

    /// Invalidates translations on every CPU without an interrupt. `None`: this machine has no
    /// such instruction.
    #[inline]
    fn tlb_broadcast() -> Option<Broadcast> {
        None
    }
    /// Whether there is a [`Machine::tlb_broadcast`].
    #[inline]
    fn has_tlb_broadcast() -> bool {
        Self::tlb_broadcast().is_some()
    }
    /// This CPU uses the translations of `asid` from now on; `None`: of no address space.
    /// Translations of others stay where they are.
    fn tlb_load(asid: Option<Asid>);
    /// The translation of `page` that this CPU keeps. Interrupts are off.
    fn tlb_lookup(asid: Asid, page: Vpn) -> Option<Translation>;
    /// This CPU keeps the translation of `page`, in place of an older one. Interrupts have been
    /// off since before the tables were read, and with [`Machine::has_tlb_broadcast`] no time has
    /// passed since then.
    fn tlb_fill(asid: Asid, page: Vpn, translation: Translation);
    /// This CPU forgets translations of `asid`: those of `range`, or all.
    fn tlb_flush_local(asid: Asid, range: Option<VmaRange>);
}
