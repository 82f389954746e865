//! The allocator of compressed pages (`mm/zsmalloc.c`): objects of less than a page in *zspages* of
//! a few pages.
//!
//! An object has a size class. The zspages of a class are under its `class->lock`, sorted by
//! fullness: an allocation takes an object of the fullest zspage with room. A zspage without
//! objects in use is freed. An object is named by a [`Handle`], from which its zspage and its class
//! follow.
//!
//! | file | contents |
//! |---|---|
//! | `size` | size classes |
//! | `zspage` | the zspages of a class |
//! | `deferred` | objects that a worker frees |
//!
//! Three mechanisms, all of freeing: [`LookupPolicy`], [`PagesPolicy`], [`FreePolicy`].
//!
//! Not modelled: compaction and migration, which take `pool->lock` for writing. So of that lock
//! there is only the count of its readers, which each of them changes twice. A zspage's record
//! shares the line of its first page's; the line of an object's own memory is part of
//! `Op::CompressedFree`.
//!
//! Lock order: [`LockClass`]. A class's lock is taken under a swap cluster's, and a zspage's pages
//! are freed under it; two classes' locks are never held together.

mod deferred;
mod size;
mod zspage;

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use core::sync::atomic::Ordering::{Acquire, Release};
use deferred::{BUFFERS, Deferred, Pushed};
use mmscale_arch::sync::{PreemptGuard, SpinGuard, SpinLock};
use mmscale_arch::{
    Access, Atomic, Cpu, CpuId, DataLine, Func, Line, LockClass, LockInstance, Op, Order, Pfn, Span,
};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocError, FrameAllocator, Gfp};
pub(crate) use size::GRAINS;
use size::shapes;
use zspage::{Class, Pages};

mmscale_arch::policies! {
    /// How the size class of a compressed page is found when it is freed.
    pub enum LookupPolicy: "zs-lookup", "zsmalloc's pool->lock when a compressed page is freed" {
        /// Takes pool->lock for reading while it follows the handle to the zspage.
        Stock = "stock",
        /// Reads the class from bits of the handle; pool->lock is not needed.
        Index = "index",
        /// Linux 6.2 to 6.10: pool->lock is a spin lock over all of an allocation or a free.
        Pool = "pool",
    }
}

mmscale_arch::policies! {
    /// When the pages of an empty zspage are freed.
    pub enum PagesPolicy: "zs-pages", "zsmalloc's class->lock over the free of an empty zspage" {
        /// Frees the pages under class->lock.
        Stock = "stock",
        /// Frees the pages after class->lock is released.
        After = "after",
    }
}

mmscale_arch::policies! {
    /// Which task frees the compressed page of a swap slot.
    pub enum FreePolicy: "zs-free", "the task that frees a swap slot's compressed page" {
        /// Frees it in the task that frees the slot.
        Stock = "stock",
        /// Puts its handle into a buffer of the CPU; a worker frees it.
        Deferred = "deferred",
    }
}

/// The policies of zsmalloc.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ZsConfig {
    /// How a size class is found.
    pub lookup: LookupPolicy,
    /// When pages are freed.
    pub pages: PagesPolicy,
    /// Which task frees an object.
    pub free: FreePolicy,
}

impl ZsConfig {
    /// Linux.
    pub const STOCK: Self =
        Self { lookup: LookupPolicy::Stock, pages: PagesPolicy::Stock, free: FreePolicy::Stock };
}

/// The name of an object: its zspage's first page, its class, and its number in the zspage.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Handle {
    first: Pfn,
    class: u8,
    object: u8,
}

impl Handle {
    /// Returns the handle as a word that is not 0.
    pub fn word(self) -> u64 {
        (self.first.index() as u64) << 32
            | u64::from(self.class) << 16
            | u64::from(self.object) << 8
            | 1
    }
    /// Returns the handle of a word of [`Handle::word`]; `None` for 0.
    pub fn of_word(word: u64) -> Option<Self> {
        let first = Pfn::new((word >> 32) as usize);
        (word != 0).then_some(Self { first, class: (word >> 16) as u8, object: (word >> 8) as u8 })
    }
}

/// Whether a worker must be queued for [`Zsmalloc::drain`].
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drain {
    /// It need not.
    NotNeeded,
    /// It must.
    Needed,
}

/// An inconsistency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZsViolation {
    /// Two slots or deferred frees have the object, or none of a zspage has it.
    Object(Handle),
    /// A zspage's count, group or number of pages is wrong.
    Zspage(Pfn),
    /// The number of objects in use is wrong.
    Objects {
        /// Objects of slots and of deferred frees.
        named: u64,
        /// Objects in use in zspages.
        inuse: u64,
    },
}

impl core::fmt::Display for ZsViolation {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Object(handle) => write!(f, "{handle:?} is not in use, or named twice"),
            Self::Zspage(first) => {
                write!(f, "the zspage at page {}: its count or its group is wrong", first.index())
            }
            Self::Objects { named, inuse } => {
                write!(f, "{named} compressed objects are named, {inuse} are in use")
            }
        }
    }
}

impl core::error::Error for ZsViolation {}

/// Counts of a pool, while nothing changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ZsAudit {
    /// Objects in use.
    pub objects: u64,
    /// Objects in use that a worker is to free.
    pub deferred: u64,
    /// Pages of zspages.
    pub pages: u64,
}

/// A pool of compressed pages.
pub struct Zsmalloc<A: Cpu> {
    config: ZsConfig,
    /// Readers of `pool->lock`.
    readers: A::AtomicU32,
    /// `pool->lock` where it is a spin lock. The classes' own locks are taken under it, without a
    /// wait: one atomic operation more than in Linux.
    pool: SpinLock<A, ()>,
    /// By number.
    classes: Box<[SpinLock<A, Class>]>,
    /// By size in 256ths of a page, the number of the class.
    class_of: Box<[u8]>,
    deferred: Deferred<A>,
}

/// `pool->lock` is held for reading until this is dropped.
struct PoolRead<'a, A: Cpu> {
    readers: &'a A::AtomicU32,
    _pinned: PreemptGuard<A>,
}

impl<A: Cpu> Drop for PoolRead<'_, A> {
    fn drop(&mut self) {
        // Would pair with a writer's exchange. There are no writers.
        self.readers.fetch_sub(1, Release);
    }
}

type Guard<'a, A, T> = SpinGuard<'a, A, T, PreemptGuard<A>>;

/// A class with its lock, and with `pool->lock` where that is a spin lock.
struct Locked<'a, A: Cpu> {
    class: Guard<'a, A, Class>,
    // Dropped after `class`.
    _pool: Option<Guard<'a, A, ()>>,
}

impl<A: Cpu> Zsmalloc<A> {
    /// Creates a pool without objects.
    pub fn new(config: ZsConfig) -> Self {
        let named = |(at, shape)| {
            let instance = LockInstance::Numbered(at as u32);
            SpinLock::named(LockClass::ZsClass, instance, Class::new(shape))
        };
        let class_of = |grains| {
            let fits = shapes().position(|shape| shape.grains >= grains);
            fits.map_or(0, |at| at as u8)
        };
        Self {
            config,
            readers: A::AtomicU32::named(0, DataLine::PoolLock),
            pool: SpinLock::new(LockClass::ZsPool, ()),
            classes: shapes().enumerate().map(named).collect(),
            class_of: (0..=GRAINS).map(class_of).collect(),
            deferred: Deferred::new(),
        }
    }

    /// Allocates an object of `grains` 256ths of a page (`zs_malloc`), which serves to free memory:
    /// it may use all free pages. Does not sleep.
    ///
    /// # Errors
    /// There is no page for another zspage.
    ///
    /// # Panics
    /// If `grains` is larger than 256.
    pub fn alloc(&self, frames: &FrameAllocator<A>, grains: usize) -> Result<Handle, AllocError> {
        let _span = Span::<A>::enter(Func::ZsMalloc);
        let number = self.class_of[grains];
        let mut locked = self.lock(number);
        let mut taken = locked.class.take();
        if taken.is_none() {
            let shape = locked.class.shape;
            drop(locked);
            let pages = alloc_pages(frames, shape.pages)?;
            locked = self.lock(number);
            taken = locked.class.take_of_new(pages);
        }
        let Some((first, object)) = taken else { unreachable!("a new zspage has room") };
        A::touch(Line::Frame(first), Access::Write);
        Ok(Handle { first, class: number, object: object as u8 })
    }

    /// Frees an object, now or by a worker, as [`FreePolicy`] says. Also called under spin locks.
    pub fn free(&self, frames: &FrameAllocator<A>, handle: Handle) -> Drain {
        if self.config.free == FreePolicy::Deferred {
            match self.deferred.push(handle) {
                Pushed::Yes => return Drain::NotNeeded,
                Pushed::YesAndFull => return Drain::Needed,
                Pushed::No => {}
            }
        }
        self.free_now(frames, handle);
        Drain::NotNeeded
    }

    /// Frees an object in the calling task (`zs_free`).
    pub fn free_now(&self, frames: &FrameAllocator<A>, handle: Handle) {
        let _span = Span::<A>::enter(Func::ZsFree);
        self.free_run(frames, &[handle]);
    }

    /// Frees objects of one class. With [`PagesPolicy::After`] releases the lock before it frees
    /// pages.
    fn free_run(&self, frames: &FrameAllocator<A>, run: &[Handle]) {
        let mut held = None;
        for &handle in run {
            let mut locked = held.take().unwrap_or_else(|| self.lock_class_of(handle));
            let empty = free_object::<A>(&mut locked.class, handle);
            if empty.is_none() || self.config.pages == PagesPolicy::Stock {
                free_pages(frames, empty);
                held = Some(locked);
            } else {
                drop(locked);
                free_pages(frames, empty);
            }
        }
    }

    /// Locks a class by its number.
    fn lock(&self, number: u8) -> Locked<'_, A> {
        let pool = (self.config.lookup == LookupPolicy::Pool).then(|| self.pool.lock());
        Locked { class: self.classes[usize::from(number)].lock(), _pool: pool }
    }

    /// Locks the class of an object.
    fn lock_class_of(&self, handle: Handle) -> Locked<'_, A> {
        let by_zspage = || A::touch(Line::Frame(handle.first), Access::Peek);
        match self.config.lookup {
            LookupPolicy::Index => self.lock(handle.class),
            LookupPolicy::Stock => {
                let _pool = self.read_lock();
                by_zspage();
                self.lock(handle.class)
            }
            LookupPolicy::Pool => {
                let pool = self.pool.lock();
                by_zspage();
                let class = self.classes[usize::from(handle.class)].lock();
                Locked { class, _pool: Some(pool) }
            }
        }
    }

    fn read_lock(&self) -> PoolRead<'_, A> {
        let pinned = PreemptGuard::new();
        // Would pair with a writer's release. There are no writers.
        self.readers.fetch_add(1, Acquire);
        PoolRead { readers: &self.readers, _pinned: pinned }
    }

    /// Frees the objects of some full buffers, half of the pool's number. Returns whether more
    /// wait. The caller is a worker. If classes are found without `pool->lock`, a class's lock is
    /// held over all objects of the class that follow one another.
    pub fn drain(&self, frames: &FrameAllocator<A>) -> Drain {
        let _span = Span::<A>::enter(Func::ZsDeferredDrain);
        for _ in 0..BUFFERS / 2 {
            let Some(buffer) = self.deferred.take() else { return Drain::NotNeeded };
            let stays = |last: &Handle, next: &Handle| {
                self.config.lookup == LookupPolicy::Index && last.class == next.class
            };
            buffer.chunk_by(stays).for_each(|run| self.free_run(frames, run));
            self.deferred.put(buffer);
        }
        if self.deferred.is_waiting() { Drain::Needed } else { Drain::NotNeeded }
    }

    /// Frees what the buffer of `cpu` has, which runs no code any more: it is dead, or the machine
    /// has stopped.
    pub fn drain_stopped(&self, frames: &FrameAllocator<A>, cpu: CpuId) {
        // SAFETY: the CPU runs no code that frees objects.
        let own = unsafe { self.deferred.take_stopped(cpu) };
        own.iter().for_each(|&handle| self.free_now(frames, handle));
    }

    /// Compares the objects in use with those that swap slots have, `named`, and with those that
    /// wait for a worker. Runs while nothing changes.
    pub fn verify(&self, named: impl Iterator<Item = Handle>) -> Result<ZsAudit, ZsViolation> {
        // SAFETY: nothing changes, as the caller promises.
        let waiting = unsafe { self.deferred.waiting() };
        let mut seen = BTreeSet::new();
        for handle in named.chain(waiting.iter().copied()) {
            let class = self.classes.get(usize::from(handle.class));
            let has = class.is_some_and(|class| class.lock().has(handle));
            if !has || !seen.insert(handle) {
                return Err(ZsViolation::Object(handle));
            }
        }
        let mut audit = ZsAudit { deferred: waiting.len() as u64, ..ZsAudit::default() };
        for class in &self.classes {
            let class = class.lock();
            if let Some(first) = class.wrong() {
                return Err(ZsViolation::Zspage(first));
            }
            audit.objects += class.zspages.values().map(|zspage| zspage.inuse as u64).sum::<u64>();
            audit.pages += (class.zspages.len() * class.shape.pages) as u64;
        }
        let named = seen.len() as u64;
        if named != audit.objects {
            return Err(ZsViolation::Objects { named, inuse: audit.objects });
        }
        Ok(audit)
    }
}

/// Frees an object; returns the pages of its zspage if that is empty now. The class's lock is held.
fn free_object<A: Cpu>(class: &mut Class, handle: Handle) -> Option<Pages> {
    A::touch(Line::Frame(handle.first), Access::Write);
    A::work(Op::CompressedFree, 1);
    class.free(handle)
}

/// Allocates the pages of a zspage.
fn alloc_pages<A: Cpu>(frames: &FrameAllocator<A>, count: usize) -> Result<Pages, AllocError> {
    let mut pages = Pages::NONE;
    let gfp = Gfp::KSWAPD | Gfp::MEMALLOC;
    for _ in 0..count {
        match frames.alloc_pages(Order::ZERO, MigrateType::Movable, gfp) {
            Ok(pfn) => pages.push(pfn),
            Err(why) => {
                free_pages(frames, Some(pages));
                return Err(why);
            }
        }
    }
    Ok(pages)
}

fn free_pages<A: Cpu>(frames: &FrameAllocator<A>, pages: Option<Pages>) {
    let frees = pages.iter().flat_map(Pages::as_slice);
    frees.for_each(|&pfn| frames.free_pages(pfn, Order::ZERO));
}
