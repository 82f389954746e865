//! The memory of an allocator's own tables: one piece, in which they follow one another.
//!
//! [`Place`] hands out the tables. Without memory it only adds up their room: constructors run as
//! they do with memory, but their tables are empty, and no value of a table is made. So the size
//! that is reported first is computed by the code that places the tables, and by nothing else.

use core::alloc::Layout;
use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use mmscale_arch::CpuId;

/// Alignment of the memory: a pair of cache lines, for machines that fetch lines in pairs.
const ALIGN: usize = 128;

/// A value of which all bits may be zero, so that its table is made without writing it.
///
/// # Safety
/// A value whose bits are all zero is valid.
pub(crate) unsafe trait Zero {}

// SAFETY: integers of the host.
unsafe impl Zero for u8 {}
// SAFETY: likewise.
unsafe impl Zero for u32 {}
// SAFETY: likewise.
unsafe impl Zero for u64 {}
// SAFETY: likewise.
unsafe impl Zero for AtomicU8 {}
// SAFETY: likewise.
unsafe impl Zero for AtomicU32 {}
// SAFETY: likewise.
unsafe impl Zero for AtomicU64 {}
// SAFETY: of its data. Its flag is `false`: the data is not in use.
unsafe impl<T: Zero> Zero for mmscale_arch::sync::Local<T> {}

/// Memory in which tables are placed, or the room that they would need.
pub(crate) struct Place {
    /// Its first byte, aligned to [`ALIGN`]; `None`: there is no memory.
    memory: Option<NonNull<u8>>,
    bytes: usize,
    used: usize,
    is_zero: bool,
}

impl Place {
    /// Measures the room of tables; there is no memory.
    pub(crate) const fn measuring() -> Self {
        Self { memory: None, bytes: usize::MAX, used: 0, is_zero: false }
    }
    /// Places tables in memory that begins with `first`. If `is_zero`, all bytes are zero.
    ///
    /// # Safety
    /// The memory is aligned to [`ALIGN`], is used by nothing else, and stays until all tables that
    /// are placed in it are dropped, or for ever if a [`SharedTable`] is made.
    pub(crate) unsafe fn of(first: NonNull<u8>, bytes: usize, is_zero: bool) -> Self {
        Self { memory: Some(first), bytes, used: 0, is_zero }
    }
    /// The layout of all that was placed.
    pub(crate) fn layout(&self) -> Layout {
        let layout = Layout::from_size_align(self.used, ALIGN);
        layout.expect("tables of less than half of the address space")
    }
    /// Whether there is memory.
    pub(crate) fn is_real(&self) -> bool {
        self.memory.is_some()
    }
    /// Takes room for a table of `len` values, which its caller fills.
    ///
    /// # Panics
    /// If the memory is too small.
    pub(crate) fn room<T>(&mut self, len: usize) -> Room<T> {
        const { assert!(align_of::<T>() <= ALIGN) };
        let first = self.used.next_multiple_of(align_of::<T>());
        let end = size_of::<T>().checked_mul(len).and_then(|bytes| first.checked_add(bytes));
        self.used = end.expect("tables are smaller than memory");
        assert!(self.used <= self.bytes, "tables of {} bytes in {}", self.used, self.bytes);
        // SAFETY: `first` is inside of the memory.
        let place = self.memory.map(|memory| unsafe { memory.add(first) }.cast());
        let room = if place.is_some() { len } else { 0 };
        Room { table: Table { first: place.unwrap_or(NonNull::dangling()), len: 0 }, room }
    }
    /// Places a table of `len` values; `make` gets their indices. Does not call it if there is no
    /// memory.
    pub(crate) fn table<T>(&mut self, len: usize, make: impl FnMut(usize) -> T) -> Table<T> {
        let mut room = self.room(len);
        (0..room.room).map(make).for_each(|value| room.push(value));
        room.done()
    }
    /// Places a table of values whose bits are all zero. Writes none of them if the memory is zero.
    pub(crate) fn zeroed<T: Zero>(&mut self, len: usize) -> Table<T> {
        let Room { mut table, room } = self.room::<T>(len);
        if !self.is_zero {
            // SAFETY: the room has so many values, and nothing else uses it.
            unsafe { table.first.write_bytes(0, room) };
        }
        table.len = room;
        table
    }
}

/// A table that is being filled.
pub(crate) struct Room<T> {
    table: Table<T>,
    /// Values for which there is memory.
    room: usize,
}

impl<T> Room<T> {
    /// Adds a value, or drops it if there is no memory.
    pub(crate) fn push(&mut self, value: T) {
        if self.table.len < self.room {
            // SAFETY: there is room for one more value, which no reference leads to.
            unsafe { self.table.first.add(self.table.len).write(value) };
            self.table.len += 1;
        }
    }
    /// The values so far, as a table.
    pub(crate) fn done(self) -> Table<T> {
        self.table
    }
}

/// Values of a [`Place`], which are dropped with this.
pub(crate) struct Table<T> {
    first: NonNull<T>,
    len: usize,
}

// SAFETY: it owns its values, as a box does.
unsafe impl<T: Send> Send for Table<T> {}
// SAFETY: likewise.
unsafe impl<T: Sync> Sync for Table<T> {}

impl<T> Table<T> {
    /// No values.
    pub(crate) const EMPTY: Self = Self { first: NonNull::dangling(), len: 0 };

    /// The values as ones that several owners read. They are never dropped.
    pub(crate) fn shared(self) -> SharedTable<T> {
        let table = core::mem::ManuallyDrop::new(self);
        SharedTable { first: table.first, len: table.len }
    }
}

impl<T> Deref for Table<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: there are so many values, until this is dropped.
        unsafe { core::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Table<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; it is borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

impl<T> Drop for Table<T> {
    fn drop(&mut self) {
        // SAFETY: they are not used afterwards.
        unsafe { core::ptr::drop_in_place::<[T]>(&mut **self) };
    }
}

/// Values of a [`Place`] that several owners read.
pub(crate) struct SharedTable<T> {
    first: NonNull<T>,
    len: usize,
}

// SAFETY: shared use gives `&T` only.
unsafe impl<T: Sync> Send for SharedTable<T> {}
// SAFETY: likewise.
unsafe impl<T: Sync> Sync for SharedTable<T> {}

impl<T> Clone for SharedTable<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SharedTable<T> {}

impl<T> Deref for SharedTable<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: there are so many values, which stay as long as the memory does.
        unsafe { core::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

/// Aligns its content to a pair of cache lines, for machines that fetch lines in pairs.
#[repr(align(128))]
pub(crate) struct Padded<T>(T);

// SAFETY: of its content; the rest is padding.
unsafe impl<T: Zero> Zero for Padded<T> {}

/// A copy of `T` for each CPU that every CPU may access: locks and atomics.
pub(crate) struct CpuTable<T>(Table<Padded<T>>);

impl<T> CpuTable<T> {
    /// Places one `T` for each of the first `cpus` CPUs; `make` may place what belongs to it.
    pub(crate) fn new(
        place: &mut Place,
        cpus: usize,
        mut make: impl FnMut(&mut Place, CpuId) -> T,
    ) -> Self {
        let mut room = place.room(cpus);
        for cpu in (0..cpus).map(CpuId::new) {
            let value = make(place, cpu);
            room.push(Padded(value));
        }
        Self(room.done())
    }
    /// Places one `T` for each of the first `cpus` CPUs, whose bits are all zero, and calls `init`
    /// for each of them: for a large `T`, which is then never on the stack.
    pub(crate) fn zeroed(place: &mut Place, cpus: usize, init: impl Fn(&mut T)) -> Self
    where
        T: Zero,
    {
        let mut slots = place.zeroed::<Padded<T>>(cpus);
        slots.iter_mut().for_each(|slot| init(&mut slot.0));
        Self(slots)
    }
    /// The copy of `cpu`.
    #[inline]
    pub(crate) fn of(&self, cpu: CpuId) -> &T {
        &self.0[cpu.index()].0
    }
    /// The copy of `cpu`; `None` if the table has none.
    #[inline]
    pub(crate) fn get(&self, cpu: CpuId) -> Option<&T> {
        Some(&self.0.get(cpu.index())?.0)
    }
    /// The size of all copies in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
    /// All copies, by CPU.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (CpuId, &T)> {
        self.0.iter().enumerate().map(|(cpu, slot)| (CpuId::new(cpu), &slot.0))
    }
}

/// The layout that the tables of `build` have.
pub(crate) fn layout_of<T>(build: impl FnOnce(&mut Place) -> T) -> Layout {
    let mut place = Place::measuring();
    drop(build(&mut place));
    place.layout()
}

/// Places the tables of `build` in a buffer that is never freed. Returns `None` if the buffer has
/// not the layout that they need.
pub(crate) fn build_in<T>(
    buffer: &'static mut [MaybeUninit<u8>],
    needed: Layout,
    build: impl FnOnce(&mut Place) -> T,
) -> Option<T> {
    let first = NonNull::from(&mut *buffer).cast::<u8>();
    let is_aligned = first.addr().get().is_multiple_of(needed.align());
    (is_aligned && buffer.len() >= needed.size()).then(|| {
        // SAFETY: the buffer is aligned, has no other user, and stays for ever.
        let mut place = unsafe { Place::of(first, needed.size(), false) };
        let built = build(&mut place);
        assert!(place.layout() == needed, "the tables have another size than was reported");
        built
    })
}
