//! The lower waist: the interface that the memory manager requires of a machine.
//!
//! [`Cpu`] and [`Machine`] are traits of static functions on a zero-sized tag type. The frame
//! allocator, spin locks and per-CPU data need [`Cpu`] only: which CPU this is, preemption and
//! interrupts, atomics and locks. The rest of the memory manager needs a [`Machine`]: tasks,
//! timers, interrupts to other CPUs, page tables, TLBs, a swap device. On real hardware every
//! function is an instruction or nothing; the simulator (`mmscale-sim`) and the real-threads
//! machine (`mmscale-threads`) implement both too, and so does the model checker. A machine calls
//! back through [`Callbacks`].
//!
//! # Contexts
//! | context | interrupts | preemption | may sleep (`park`, sleeping locks) |
//! |---|---|---|---|
//! | a task, nothing held | on | on | yes |
//! | a task under a guard of a spin lock or of preemption | on or off | off | no |
//! | an interrupt: `ipi`, `timer`, `idle_*` callbacks | off | off | no |
//!
//! # Features
//! `alloc`, on by default: what needs a heap. Without it the crate does not refer to `alloc`, so it
//! links into a program without a `#[global_allocator]`. It then has no locks that sleep
//! (`sync::Mutex`, `RwSem`, `WaitQueue`), no `sync::PerCpu` and the like, `counters`, `SoftTlb` or
//! `Probe`. The frame allocator needs none of them.
//!
//! Architecture invariant: nothing here depends on a study, an arm or a policy.

#![no_std]
#![forbid(unsafe_op_in_unsafe_fn)]

#[cfg(any(feature = "alloc", test))]
extern crate alloc;

mod addr;
mod atomic;
pub mod bare;
mod cost;
#[cfg(feature = "alloc")]
pub mod counters;
mod cpu;
mod event;
mod func;
mod ids;
mod instance;
mod io;
mod line;
mod lock_class;
mod machine;
mod mask;
mod names;
mod policy;
#[cfg(feature = "alloc")]
mod probe;
mod random;
pub mod sync;
#[cfg(feature = "alloc")]
mod tlb;
mod trace;
mod translation;

pub use addr::{ADDRESS_BITS, PAGE_SHIFT, PAGE_SIZE, USER_END, VmaRange, Vpn};
pub use atomic::{Atomic, OwnedCounter, OwnedValue, RawOsq, RawSpin};
pub use cost::{Access, Line, Op};
pub use cpu::{Cpu, IrqState, PathId, Span};
pub use event::{
    CallEvent, CounterEvent, ExitEvent, IdleEvent, LruEvent, OomEvent, PageEvent, PcpEvent,
    TickEvent, TlbEvent, ZapBy,
};
pub use func::Func;
pub use ids::{
    CpuId, LockInstance, MAX_CPUS, MAX_NODES, MAX_ORDER, NodeId, ORDERS, Order, PAGEBLOCK_ORDER,
    Pfn, TaskId, VirtAddr,
};
pub use instance::NamedLock;
pub use io::{IoBusy, IoDirection, IoDone, PageIo};
pub use line::{DataLine, LineName};
pub use lock_class::LockClass;
pub use machine::{
    Broadcast, Callbacks, HotplugError, Ipi, LockHold, Machine, Priority, TaskEntry, TaskSpec,
};
pub use mask::CpuMask;
pub use policy::{About, Policy};
#[cfg(feature = "alloc")]
pub use probe::Probe;
pub use random::random;
#[cfg(feature = "alloc")]
pub use tlb::{SoftTlb, TlbHit};
pub use trace::{Trace, TraceGroup};
pub use translation::{Asid, PageSize, Translation, Walked};
