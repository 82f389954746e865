//! Files and pipes that QEMU inherits. QEMU opens them by `/proc/self/fd`, so nothing has a name on
//! disk, and nothing is left when a process is killed.

use super::memory::GuestMemory;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// The files and ports of every machine.
pub(super) struct Carried {
    kernel: File,
    archive: File,
    console: Pipe,
    port: Pipe,
}

/// A pipe: from where it is read, and to where it is written.
pub(crate) struct Pipe {
    pub(crate) from: File,
    pub(crate) to: OwnedFd,
}

impl Pipe {
    pub(crate) fn new() -> io::Result<Self> {
        let (from, to) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok(Self { from: File::from(from), to })
    }
}

/// Makes a file in memory.
pub(crate) fn in_memory(name: &str, bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file)
}

/// The path by which a process opens a descriptor that it has inherited.
pub(crate) fn path_of(fd: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

impl Carried {
    pub(super) fn new(kernel: &[u8], archive: &[u8]) -> io::Result<Self> {
        Ok(Self {
            kernel: in_memory("kernel", kernel)?,
            archive: in_memory("archive", archive)?,
            console: Pipe::new()?,
            port: Pipe::new()?,
        })
    }
    pub(super) fn kernel_path(&self) -> String {
        path_of(&self.kernel)
    }
    pub(super) fn archive_path(&self) -> String {
        path_of(&self.archive)
    }
    /// The serial ports in their order.
    pub(super) fn port_paths(&self) -> [String; 2] {
        [path_of(&self.console.to), path_of(&self.port.to)]
    }
    /// The descriptors that QEMU inherits.
    pub(super) fn inherited(&self, plugin: Option<&Plugin>) -> Vec<RawFd> {
        let own = [
            self.kernel.as_raw_fd(),
            self.archive.as_raw_fd(),
            self.console.to.as_raw_fd(),
            self.port.to.as_raw_fd(),
        ];
        let plugin = plugin.map(Plugin::inherited);
        own.into_iter().chain(plugin.unwrap_or_default()).collect()
    }
    /// Returns console and port, to read from. The ends to write to are closed, so that both end
    /// with QEMU.
    pub(super) fn ports(self) -> (File, File) {
        (self.console.from, self.port.from)
    }
}

/// The plugin of a machine, with the pipes to and from it.
pub(crate) struct Plugin {
    library: File,
    symbols: OwnedFd,
    counts: OwnedFd,
    /// The memory of the machine, if it is wanted after its end.
    memory: Option<GuestMemory>,
}

impl Plugin {
    /// Creates a plugin from its file, the pipe from which it reads symbols, and the one to which
    /// it writes counts.
    pub(crate) fn new(
        library: &[u8],
        symbols: File,
        counts: OwnedFd,
        memory: Option<GuestMemory>,
    ) -> io::Result<Self> {
        Ok(Self { library: in_memory("plugin", library)?, symbols: symbols.into(), counts, memory })
    }
    pub(super) fn memory_paths(&self) -> Option<Vec<String>> {
        self.memory.as_ref().map(|memory| memory.files().iter().map(path_of).collect())
    }
    /// Closes its pipes. Returns the memory of the machine, which has ended.
    pub(crate) fn into_memory(self) -> Option<GuestMemory> {
        self.memory
    }
    pub(super) fn option(&self) -> String {
        let (symbols, counts) = (path_of(&self.symbols), path_of(&self.counts));
        format!("file={},symbols={symbols},out={counts}", path_of(&self.library))
    }
    fn inherited(&self) -> Vec<RawFd> {
        let own = [self.library.as_raw_fd(), self.symbols.as_raw_fd(), self.counts.as_raw_fd()];
        let memory = self.memory.iter().flat_map(GuestMemory::files);
        own.into_iter().chain(memory.map(AsRawFd::as_raw_fd)).collect()
    }
}
