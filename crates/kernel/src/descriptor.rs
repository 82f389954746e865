//! File descriptors: the objects that a process has opened, by small numbers.

use alloc::sync::Arc;
use alloc::vec::Vec;
use mmscale_arch::Machine;
use mmscale_mm::space::{File, MmRef};
use mmscale_system::Fd;

/// An open object; `P` is the process type.
pub(crate) enum Open<A: Machine, P> {
    /// A process.
    Process(Arc<P>),
    /// A file. The descriptor holds one user reference of it.
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
    /// Returns another reference to the open object, for another descriptor.
    fn share(&self) -> Self {
        if let Self::File(file) = self {
            file.get();
        }
        self.clone()
    }
    pub(crate) fn close(self, on: MmRef<'_, A>) {
        match self {
            Self::Process(_) => {}
            Self::File(file) => file.put(on),
        }
    }
}

/// The descriptor table of a process. It must be closed with [`Descriptors::close`].
pub(crate) struct Descriptors<A: Machine, P> {
    slots: Vec<Option<Open<A, P>>>,
}

impl<A: Machine, P> Descriptors<A, P> {
    /// Creates an empty table.
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new() }
    }
    /// Copies the table for a fork.
    pub(crate) fn share(&self) -> Self {
        Self { slots: self.slots.iter().map(|open| open.as_ref().map(Open::share)).collect() }
    }
    /// Copies the descriptors of files for a process that is not forked. Those of processes are
    /// closed there, as by exec.
    pub(crate) fn share_files(&self) -> Self {
        let file = |open: &Open<A, P>| matches!(open, Open::File(_)).then(|| open.share());
        Self { slots: self.slots.iter().map(|open| open.as_ref().and_then(file)).collect() }
    }
    /// Removes the descriptors of processes (`do_close_on_exec`).
    pub(crate) fn take_processes(&mut self) -> Self {
        let process =
            |open: &mut Option<Open<A, P>>| open.take_if(|open| matches!(open, Open::Process(_)));
        Self { slots: self.slots.iter_mut().map(process).collect() }
    }
    /// Whether one is of a file.
    pub(crate) fn has_files(&self) -> bool {
        self.slots.iter().any(|open| matches!(open, Some(Open::File(_))))
    }
    /// Closes all descriptors.
    pub(crate) fn close(self, on: MmRef<'_, A>) {
        self.slots.into_iter().flatten().for_each(|open| open.close(on));
    }
    /// Stores `open` under the lowest free number.
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
