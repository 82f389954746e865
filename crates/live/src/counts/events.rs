//! The tracepoints of a trace.

use super::CountsError;

/// The function of the kernel that drains pages of a page cache in one hold of the zone's lock.
pub(super) const DRAIN: &str = "free_pcppages_bulk";

/// The tracepoints that are watched on CPU 0, where the program makes its calls.
pub(super) const EVENTS: [&str; 9] = [
    "kmem/mm_page_alloc",
    "kmem/mm_page_alloc_zone_locked",
    "kmem/mm_page_free",
    "kmem/mm_page_pcpu_drain",
    "pagemap/mm_lru_insertion",
    "tlb/tlb_flush",
    "mmap_lock/mmap_lock_acquire_returned",
    "mmap_lock/mmap_lock_released",
    "exceptions/page_fault_user",
];
/// Those of interrupts to other CPUs, since Linux 6.4.
pub(super) const INTERRUPTS: [&str; 2] = ["ipi/ipi_send_cpumask", "ipi/ipi_send_cpu"];

/// Returns whether the kernel has tracepoints of interrupts to other CPUs. `has` returns whether it
/// has a tracepoint. An error if it lacks one without which nothing is compared.
pub(super) fn sees_interrupts(has: impl Fn(&str) -> bool) -> Result<bool, CountsError> {
    let absent: Vec<&str> = EVENTS.into_iter().filter(|event| !has(event)).collect();
    if absent.is_empty() {
        return Ok(INTERRUPTS.into_iter().all(has));
    }
    Err(CountsError::Events(absent.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_may_lack_those_of_interrupts_only() {
        let why = sees_interrupts(|event| !event.starts_with("kmem/mm_page_a")).unwrap_err();
        let names = "kmem/mm_page_alloc, kmem/mm_page_alloc_zone_locked:";
        assert!(why.to_string().contains(names), "{why}");
        assert!(!sees_interrupts(|event| !event.starts_with("ipi/")).unwrap());
        assert!(sees_interrupts(|_| true).unwrap());
    }
}
