//! Data of which every CPU has its own copy.

use super::NoPreempt;
use crate::{Cpu, CpuId};
use alloc::boxed::Box;
use core::marker::PhantomData;

/// Keeps its content on cache lines of its own (two, for machines that fetch lines in pairs).
#[repr(align(128))]
struct Padded<T>(T);

/// A copy of `T` for each CPU that only that CPU reaches.
///
/// [`PerCpu::get`] gives `&T`, never `&mut T`: fields are `Cell`s. A field that an interrupt
/// changes too is touched by tasks only with interrupts off. What other CPUs read belongs in
/// [`EachCpu`].
pub struct PerCpu<A: Cpu, T> {
    slots: Box<[Padded<T>]>,
    arch: PhantomData<fn() -> A>,
}

impl<A: Cpu, T> PerCpu<A, T> {
    /// One `T` for each possible CPU.
    pub fn new(mut make: impl FnMut(CpuId) -> T) -> Self {
        let slots = (0..A::cpus_possible()).map(|cpu| Padded(make(CpuId::new(cpu)))).collect();
        Self { slots, arch: PhantomData }
    }
    /// This CPU's copy, for as long as the guard keeps the caller here.
    #[inline]
    pub fn get<'a>(&'a self, pinned: &'a impl NoPreempt<A>) -> &'a T {
        &self.slots[pinned.cpu().index()].0
    }
    /// The copy of a CPU that does not run: before it first starts, or after it has died.
    ///
    /// # Safety
    /// Nothing runs on `cpu`, and nothing will until the reference is gone; no other CPU calls
    /// this for the same `cpu` meanwhile.
    #[inline]
    pub unsafe fn get_stopped(&self, cpu: CpuId) -> &T {
        &self.slots[cpu.index()].0
    }
}

// SAFETY: a `T` is reached only from its own CPU (`get`), or when that CPU does not run
// (`get_stopped`): by one thread at a time, which is what `Send` allows.
unsafe impl<A: Cpu, T: Send> Sync for PerCpu<A, T> {}

/// A copy of `T` for each CPU that every CPU may reach: locks and atomics.
pub struct EachCpu<T> {
    slots: Box<[Padded<T>]>,
}

impl<T> EachCpu<T> {
    /// One `T` for each possible CPU of `A`.
    pub fn new<A: Cpu>(mut make: impl FnMut(CpuId) -> T) -> Self {
        Self { slots: (0..A::cpus_possible()).map(|cpu| Padded(make(CpuId::new(cpu)))).collect() }
    }
    /// The copy of `cpu`.
    #[inline]
    pub fn of(&self, cpu: CpuId) -> &T {
        &self.slots[cpu.index()].0
    }
    /// The copy of `cpu`, if it is a CPU that may exist.
    #[inline]
    pub fn get(&self, cpu: CpuId) -> Option<&T> {
        Some(&self.slots.get(cpu.index())?.0)
    }
    /// Bytes that all copies take.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }
    /// All copies, by CPU.
    pub fn iter(&self) -> impl Iterator<Item = (CpuId, &T)> {
        self.slots.iter().enumerate().map(|(cpu, slot)| (CpuId::new(cpu), &slot.0))
    }
}
