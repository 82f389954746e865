//! Per-CPU data.

use super::NoPreempt;
use crate::{Cpu, CpuId};
use alloc::boxed::Box;
use core::marker::PhantomData;

/// Aligns its content to a pair of cache lines, for machines that fetch lines in pairs.
#[repr(align(128))]
struct Padded<T>(T);

/// A copy of `T` for each CPU that only that CPU accesses.
///
/// [`PerCpu::get`] returns `&T`, never `&mut T`: fields are `Cell`s. Tasks access a field that an
/// interrupt changes too only with interrupts off. Data that other CPUs read belongs in
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
    /// This CPU's copy, for the lifetime of the guard that pins the caller to the CPU.
    #[inline]
    pub fn get<'a>(&'a self, pinned: &'a impl NoPreempt<A>) -> &'a T {
        &self.slots[pinned.cpu().index()].0
    }
    /// The copy of a CPU that does not run: before it first starts, or after it has died.
    ///
    /// # Safety
    /// `cpu` runs no code until the reference is dropped, and no other CPU calls this function for
    /// the same `cpu` meanwhile.
    #[inline]
    pub unsafe fn get_stopped(&self, cpu: CpuId) -> &T {
        &self.slots[cpu.index()].0
    }
}

// SAFETY: a `T` is accessed only on its own CPU (`get`), or while that CPU does not run
// (`get_stopped`). So one thread at a time accesses it, which `Send` allows.
unsafe impl<A: Cpu, T: Send> Sync for PerCpu<A, T> {}

/// A copy of `T` for each CPU that every CPU may access: locks and atomics.
pub struct EachCpu<T> {
    slots: Box<[Padded<T>]>,
}

impl<T> EachCpu<T> {
    /// One `T` for each possible CPU of `A`.
    pub fn new<A: Cpu>(mut make: impl FnMut(CpuId) -> T) -> Self {
        Self::first(A::cpus_possible(), &mut make)
    }
    /// One `T` for each of the first `cpus` CPUs.
    pub fn first(cpus: usize, mut make: impl FnMut(CpuId) -> T) -> Self {
        Self { slots: (0..cpus).map(|cpu| Padded(make(CpuId::new(cpu)))).collect() }
    }
    /// The copy of `cpu`.
    #[inline]
    pub fn of(&self, cpu: CpuId) -> &T {
        &self.slots[cpu.index()].0
    }
    /// The copy of `cpu`; `None` if no such CPU may exist.
    #[inline]
    pub fn get(&self, cpu: CpuId) -> Option<&T> {
        Some(&self.slots.get(cpu.index())?.0)
    }
    /// The size of all copies in bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }
    /// All copies, by CPU.
    pub fn iter(&self) -> impl Iterator<Item = (CpuId, &T)> {
        self.slots.iter().enumerate().map(|(cpu, slot)| (CpuId::new(cpu), &slot.0))
    }
}
