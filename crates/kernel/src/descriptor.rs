//! Descriptors: what a process has opened, by small numbers of its own.

use alloc::sync::Arc;
use alloc::vec::Vec;
use mmscale_arch::Machine;
use mmscale_mm::space::{Backing, File};
use mmscale_system::Fd;

/// Something that is open; `P` is a process.
pub(crate) enum Open<A: Machine, P> {
    /// A process.
    Process(Arc<P>),
    /// A file; the descriptor is one of its users.
    File(Arc<File<A>>),
}

impl<A: Machine, P> Clone for Open<A, P> {
    fn clone(&self) -> Self {
        match self {
            Self::Process(process) => Self::Process(Arc::clone(process)),
            Self::File(file) => Self::File(Arc::clone(file)),
        }
    }
}

impl<A: Machine, P> Open<A, P> {
    /// The same once more, under another number.
    fn share(&self) -> Self {
        if let Self::File(file) = self {
            file.get();
        }
        self.clone()
    }
    pub(crate) fn close(self, on: Backing<'_, A>) {
        match self {
            Self::Process(_) => {}
            Self::File(file) => file.put(on),
        }
    }
}

/// The descriptors of a process. They are closed with [`Descriptors::close`].
pub(crate) struct Descriptors<A: Machine, P> {
    slots: Vec<Option<Open<A, P>>>,
}

impl<A: Machine, P> Descriptors<A, P> {
    /// Nothing is open.
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new() }
    }
    /// The same for a fork.
    pub(crate) fn share(&self) -> Self {
        Self { slots: self.slots.iter().map(|open| open.as_ref().map(Open::share)).collect() }
    }
    /// Closes all.
    pub(crate) fn close(self, on: Backing<'_, A>) {
        self.slots.into_iter().flatten().for_each(|open| open.close(on));
    }
    /// Gives `open` the lowest free number.
    pub(crate) fn insert(&mut self, open: Open<A, P>) -> Fd {
        let free = self.slots.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[at] = Some(open);
        Fd(at as u32)
    }
    pub(crate) fn get(&self, fd: Fd) -> Option<&Open<A, P>> {
        self.slots.get(fd.0 as usize)?.as_ref()
    }
    pub(crate) fn remove(&mut self, fd: Fd) -> Option<Open<A, P>> {
        self.slots.get_mut(fd.0 as usize)?.take()
    }
}
