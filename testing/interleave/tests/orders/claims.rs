//! Numbers that several CPUs claim from both ends of one range.

use mmscale_interleave::{CpuBody, Model, check, cpu_body, run};
use mmscale_mm::space::{ClaimEnd, Claims};
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// The existing ones of 12 numbers; consecutive ones belong together.
const THERE: [u32; 6] = [0, 1, 5, 6, 7, 11];

/// Returns the first number at or after `end`, and up to one more of its row.
fn find(end: ClaimEnd) -> impl Fn(Range<u32>) -> Option<Range<u32>> {
    move |left| {
        let is_there = |number: u32| left.contains(&number) && THERE.contains(&number);
        let mut there = left.clone().filter(|&number| is_there(number));
        if end == ClaimEnd::Low {
            let first = there.next()?;
            Some(first..first + 1 + u32::from(is_there(first + 1)))
        } else {
            let last = there.next_back()?;
            Some(last - u32::from(last > 0 && is_there(last - 1))..last + 1)
        }
    }
}

#[test]
fn each_number_is_claimed_once_and_none_is_left_out() {
    check(4000, || {
        let claimed = Arc::new(Mutex::new(Vec::new()));
        let claims = Arc::new(Claims::<Model>::new(12));
        run(3, || {
            let claimant = |end: ClaimEnd| -> CpuBody {
                let (claims, claimed) = (Arc::clone(&claims), Arc::clone(&claimed));
                cpu_body(move || {
                    while let Some(numbers) = claims.take(end, find(end)) {
                        claimed.lock().expect("no claimant panics").extend(numbers);
                    }
                    assert!(claims.left().is_empty(), "nothing was left for it");
                })
            };
            (
                None,
                vec![claimant(ClaimEnd::Low), claimant(ClaimEnd::High), claimant(ClaimEnd::High)],
            )
        });
        let mut all = claimed.lock().expect("no claimant panics").clone();
        all.sort_unstable();
        assert_eq!(all, THERE);
    });
}
