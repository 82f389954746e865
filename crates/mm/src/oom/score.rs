//! The score of a process: how much memory killing it frees.

/// The adjustment of a process that is never killed.
pub const ADJ_MIN: i32 = -1000;
/// The adjustment of a process that is killed first.
pub const ADJ_MAX: i32 = 1000;

/// The score (`oom_badness`): the pages that the exit frees, plus `adjustment` thousandths of the
/// `total` pages in scope. `None`: it is never killed.
pub const fn badness(pages: u64, adjustment: i32, total: u64) -> Option<i64> {
    if adjustment <= ADJ_MIN {
        return None;
    }
    Some(pages as i64 + adjustment as i64 * (total / 1000) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_is_pages_and_thousandths_of_all() {
        assert_eq!(badness(300, 0, 100_000), Some(300));
        assert_eq!(badness(300, 500, 100_000), Some(50_300));
        assert_eq!(badness(300, -999, 100_000), Some(300 - 99_900));
        assert_eq!(badness(u64::MAX >> 1, ADJ_MIN, 100_000), None);
        // Totals below 1000 pages have no thousandths.
        assert_eq!(badness(300, ADJ_MAX, 999), Some(300));
    }
}
