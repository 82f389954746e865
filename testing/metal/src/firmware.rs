//! Facts from the firmware: the memory map, the processors, and the command line.
//!
//! The loader passes the structure `hvm_start_info` of the PVH boot protocol (Xen,
//! `xen/include/public/arch-x86/hvm/start_info.h`, version 1). The processors are in the table MADT
//! (ACPI 6.5, section 5.2.12).

use core::ffi::CStr;

/// The physical address of something that the firmware wrote; memory below 4 GiB is mapped to
/// itself.
type Address = u64;

/// `hvm_start_info`.
#[repr(C)]
pub(crate) struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    module_list: Address,
    command_line: Address,
    rsdp: Address,
    memory_map: Address,
    memory_map_entries: u32,
    reserved: u32,
}

/// `hvm_memmap_table_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
struct MemoryRange {
    start: Address,
    bytes: u64,
    kind: u32,
    reserved: u32,
}

const MAGIC: u32 = 0x336e_c578;
/// Memory that software may use.
const RAM: u32 = 1;
const PAGE_SHIFT: u32 = 12;
/// Memory above is not mapped.
const MAPPED_END: Address = 1 << 32;

/// Numbers of frames.
pub(crate) type FrameRange = core::ops::Range<usize>;

impl StartInfo {
    /// Panics if the loader does not follow the protocol.
    pub(crate) fn check(&self) {
        assert!(self.magic == MAGIC, "the loader passed no hvm_start_info");
        assert!(self.version >= 1, "the loader passed no memory map");
    }

    /// The command line.
    pub(crate) fn command_line(&self) -> &str {
        if self.command_line == 0 {
            return "";
        }
        // SAFETY: the loader passes the address of a string that ends with 0.
        let line = unsafe { CStr::from_ptr(self.command_line as *const _) };
        line.to_str().unwrap_or("")
    }

    /// The whole frames of RAM, in the order of the firmware's map.
    pub(crate) fn ram(&self) -> impl Iterator<Item = FrameRange> {
        let (first, count) = (self.memory_map as *const MemoryRange, self.memory_map_entries);
        // SAFETY: the loader passes the address of so many entries.
        let ranges = (0..count as usize).map(move |at| unsafe { *first.add(at) });
        ranges.filter(|range| range.kind == RAM).filter_map(|range| {
            let end = (range.start + range.bytes).min(MAPPED_END) >> PAGE_SHIFT;
            let start = range.start.next_multiple_of(1 << PAGE_SHIFT) >> PAGE_SHIFT;
            (start < end).then_some(start as usize..end as usize)
        })
    }

    /// Calls `found` with the number of the local APIC of each processor that can be used.
    pub(crate) fn each_processor(&self, mut found: impl FnMut(u8)) {
        let madt = self.madt();
        // Its entries follow a header of 36 bytes, an address and flags. The first bytes of an
        // entry are its kind and its length.
        let mut at = 44;
        while at + 2 <= madt.len() {
            let entry = &madt[at..(at + usize::from(madt[at + 1])).min(madt.len())];
            match entry {
                // A local APIC: the processor's number, the APIC's number, flags; bit 0: enabled.
                [0, _, _, apic, flags, ..] if flags & 1 != 0 => found(*apic),
                [_, 0 | 1, ..] => panic!("the firmware's table MADT has an entry without a length"),
                _ => {}
            }
            at += entry.len();
        }
    }

    fn madt(&self) -> &[u8] {
        assert!(self.rsdp != 0, "the firmware has no ACPI tables");
        // The address of the RSDT, whose entries are 32 bits wide, is at byte 16 of the RSDP.
        let rsdt = table(u64::from(read_u32(self.rsdp + 16)));
        let tables = rsdt[36..].chunks_exact(4).map(|address| {
            table(u64::from(u32::from_le_bytes([address[0], address[1], address[2], address[3]])))
        });
        let madt = tables.into_iter().find(|table| table.starts_with(b"APIC"));
        madt.expect("the firmware has no table of processors (MADT)")
    }
}

/// An ACPI table; its length is at byte 4.
fn table(at: Address) -> &'static [u8] {
    // SAFETY: the firmware passes the address of a table that stays there, and its length.
    unsafe { core::slice::from_raw_parts(at as *const u8, read_u32(at + 4) as usize) }
}

fn read_u32(at: Address) -> u32 {
    // SAFETY: `at` is in a table of the firmware, which stays there.
    unsafe { (at as *const u32).read_unaligned() }
}
