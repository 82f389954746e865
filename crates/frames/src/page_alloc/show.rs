//! The text of `/proc/zoneinfo`, as far as it takes time: a reader holds each zone's lock, with
//! interrupts off, while it formats the numbers of the zone and of all its page caches
//! (`zoneinfo_show_print`, 6.18).
//!
//! The text of a node must fit one buffer. A buffer that overflows is dropped, and the text is
//! formatted again into one of twice the size (`seq_read_iter`). So a machine with many CPUs holds
//! the lock several times for one reader.

use super::FrameAllocator;
use mmscale_arch::{Cpu, CpuMask, Func, Op, Span};

/// Numbers of a node, printed with its first zone: counted in the file of Linux 6.18.
const NODE_NUMBERS: u32 = 51;
/// Numbers of a zone.
const ZONE_NUMBERS: u32 = 30;
/// Numbers of a CPU's page cache.
const CPU_NUMBERS: u32 = 7;
/// Numbers that fit the first buffer, a page of 4 KiB: 25 bytes each in that file.
const BUFFER_NUMBERS: u32 = 4096 / 25;

impl<A: Cpu> FrameAllocator<A> {
    /// Formats `/proc/zoneinfo` and drops the text. Zones without a lock (`blockmap`) are read
    /// without one.
    pub fn zoneinfo_show(&self) {
        let _span = Span::<A>::enter(Func::ZoneinfoShowPrint);
        let mut online = CpuMask::EMPTY;
        A::online(&mut online);
        let mut before = None;
        for zone in self.zones.iter() {
            let of_node = if before == Some(zone.node) { 0 } else { NODE_NUMBERS };
            before = Some(zone.node);
            let numbers = of_node + ZONE_NUMBERS + CPU_NUMBERS * online.count() as u32;
            let mut room = BUFFER_NUMBERS;
            loop {
                let held = zone.lists().map(|lists| lists.buddy.lock_irqsave());
                A::work(Op::SeqNumber, numbers.min(room));
                drop(held);
                if numbers <= room {
                    break;
                }
                room *= 2;
            }
        }
    }
}
