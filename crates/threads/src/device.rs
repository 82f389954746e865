//! The swap device: a file that this CPU's thread reads and writes immediately. The completion is
//! signalled as by a device, by an interrupt where interrupts are next on.

use crate::arena::PAGE_BYTES;
use crate::host::lock;
use crate::state::{Cpu, here, pending};
use mmscale_arch::{IoDirection, IoDone, Ipi, PageIo};

/// Performs a request and raises its completion interrupt.
pub(crate) fn submit(io: PageIo) {
    let failed = !now(io);
    let cpu = here();
    lock(&cpu.finished).push_back(IoDone { io, failed });
    cpu.notify(pending::bit(Ipi::Block));
}

/// Reads or writes a block; returns whether that succeeded.
pub(crate) fn now(io: PageIo) -> bool {
    let machine = here().machine();
    let mut page = [0; PAGE_BYTES];
    let result = match io.direction {
        IoDirection::Write => {
            machine.arena.read(io.pfn, &mut page);
            machine.swap_file.write(io.block, &page)
        }
        IoDirection::Read => machine.swap_file.read(io.block, &mut page).map(|()| {
            machine.arena.fill(io.pfn, &page);
        }),
    };
    result.is_ok()
}

/// Takes a finished request of this CPU, or of one that is offline.
pub(crate) fn done() -> Option<IoDone> {
    let cpu = here();
    let take = |cpu: &Cpu| lock(&cpu.finished).pop_front();
    take(cpu).or_else(|| {
        let machine = cpu.machine();
        let mut gone = machine.cpus.iter().filter(|other| !machine.is_online(other.id));
        gone.find_map(take)
    })
}
