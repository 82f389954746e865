//! Watermarks and reserves, by the kernel's formulas (`mm/page_alloc.c`, 6.19).

/// Watermarks of a zone: bounds of its free pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watermarks {
    /// Below this only urgent allocations succeed.
    pub min: u32,
    /// Below this reclaim is woken.
    pub low: u32,
    /// Reclaim stops here; below it page caches shrink instead of growing.
    pub high: u32,
}

/// The default of `min_free_kbytes`: 4 * sqrt(memory in kB), within 128..=262144.
pub const fn default_min_free_kb(memory_kb: u64) -> u64 {
    let kb = (memory_kb * 16).isqrt();
    if kb < 128 {
        128
    } else if kb > 262_144 {
        262_144
    } else {
        kb
    }
}

/// The value to which khugepaged raises `min_free_kbytes`, in pages, with `zones` zones and
/// pageblocks of `block_pages` pages (`set_recommended_min_free_kbytes`): two pageblocks of each
/// zone, and nine for the separation of types. Linux never reserves more than a twentieth of
/// memory for that.
///
/// With pages of 64 KiB that is 11 GiB. With pages of 4 KiB it is 44 MiB, which is left out:
/// machines of 128 GiB and more have as much by default.
pub const fn huge_page_min_free(zones: u64, block_pages: u64) -> u64 {
    zones * (2 + 9) * block_pages
}

/// The watermarks of a zone of `managed` pages, its share of `min_free_pages` for all `total`
/// pages. The distance between the marks is min / 4 or `scale` / 10000 of the zone, whichever is
/// larger.
pub const fn watermarks(managed: u64, total: u64, min_free_pages: u64, scale: u32) -> Watermarks {
    let Some(min) = (min_free_pages * managed).checked_div(total) else {
        return Watermarks { min: 0, low: 0, high: 0 };
    };
    let quarter = min / 4;
    let scaled = managed * scale as u64 / 10_000;
    let step = if quarter > scaled { quarter } else { scaled };
    Watermarks { min: min as u32, low: (min + step) as u32, high: (min + 2 * step) as u32 }
}

/// `lowmem_reserve_ratio` of a DMA32 zone: it reserves from allocations that accept better zones
/// the number of pages of those zones, divided by this.
pub const LOWMEM_RESERVE_RATIO: u32 = 256;
