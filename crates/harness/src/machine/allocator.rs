//! Parameters of every simulated kernel's page allocator: the settings of an administrator.
//!
//! A parameter has the name of the setting in Linux. At 0 the kernel, or the study, chooses. A
//! plan refuses a parameter that an arm's policies ignore.

use mmscale_frames::pcp::BATCH_SCALE_MAX;
use mmscale_mm::mm::MmConfig;

use crate::param::{ParamSpec, Params, Unit};

const MIN_FREE: &str = "min_free_kbytes";
const WATERMARKS: &str = "watermark_scale_factor";
pub(crate) const HIGH_FRACTION: &str = "percpu_pagelist_high_fraction";
pub(crate) const BATCH: &str = "pcp_batch";
pub(crate) const BATCH_SCALE: &str = "pcp_batch_scale_max";

/// Returns the parameters.
pub(crate) fn allocator_params() -> [ParamSpec; 5] {
    [
        ParamSpec::count(
            MIN_FREE,
            Unit::One,
            0,
            [0, 1 << 30],
            "memory below the min watermarks of all zones, in KiB; 0: by the size of memory \
             (vm.min_free_kbytes; sim, threads)",
        ),
        ParamSpec::count(
            WATERMARKS,
            Unit::One,
            0,
            [0, 3000],
            "distance between watermarks in 1/10000 of a zone; 0: 10 (vm.watermark_scale_factor; \
             sim, threads)",
        ),
        ParamSpec::count(
            HIGH_FRACTION,
            Unit::One,
            0,
            [0, 1 << 30],
            "fixes `high` of page caches at their share of a zone divided by this, 8 or more; 0: \
             caches tune themselves (vm.percpu_pagelist_high_fraction; sim, threads)",
        ),
        ParamSpec::count(
            BATCH,
            Unit::Pages,
            0,
            [0, 1024],
            "pages that a page cache moves at a time, before policy `batch`; 0: by the size of the \
             zone, up to 63 of 4 KiB (sim, threads)",
        ),
        ParamSpec::count(
            BATCH_SCALE,
            Unit::One,
            BATCH_SCALE_MAX as u64,
            [0, 6],
            "a refill grows to at most 2^this batches (CONFIG_PCP_BATCH_SCALE_MAX; sim, threads)",
        ),
    ]
}

/// Applies the parameters that were set. The error is one of a value that no kernel accepts, or
/// that this memory has no room for.
pub(crate) fn set_allocator(params: &Params, mm: &mut MmConfig) -> Result<(), String> {
    let chosen = |name: &str| Some(params.count(name)).filter(|&value| value != 0);
    let memory_kb = mm.map.frames() as u64 * u64::from(mm.alloc.page_kib);
    let alloc = &mut mm.alloc;
    if let Some(kb) = chosen(MIN_FREE) {
        if kb > memory_kb / 4 {
            return Err(format!(
                "{MIN_FREE} is {kb}; at most a quarter of the machine's {memory_kb} KiB is allowed"
            ));
        }
        alloc.min_free_kb = Some(kb);
    }
    if let Some(scale) = chosen(WATERMARKS) {
        alloc.watermark_scale = scale as u32;
    }
    if let Some(fraction) = chosen(HIGH_FRACTION) {
        alloc.high_fraction = Some(fraction as u32);
    }
    if let Some(pages) = chosen(BATCH) {
        alloc.batch_pages = Some(pages as u32);
    }
    alloc.batch_scale_max = params.count(BATCH_SCALE) as u8;
    alloc.check().map_err(|why| why.to_string())
}
