//! Numbers that several claim from both ends of one stretch.

use mmscale_interleave::{Cpu, Model, check, cpu_body, run};
use mmscale_mm::space::{Claims, End};
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Of 12 numbers these have something behind them.
const THERE: [u32; 5] = [0, 1, 5, 6, 11];

fn find(end: End) -> impl Fn(Range<u32>) -> Option<u32> {
    move |left| {
        let mut there = THERE.into_iter().filter(|number| left.contains(number));
        if end == End::Low { there.next() } else { there.next_back() }
    }
}

#[test]
fn each_number_is_claimed_once_and_none_is_left_out() {
    check(4000, || {
        let claimed = Arc::new(Mutex::new(Vec::new()));
        let claims = Arc::new(Claims::<Model>::new(12));
        run(3, || {
            let claimant = |end: End| -> Cpu {
                let (claims, claimed) = (Arc::clone(&claims), Arc::clone(&claimed));
                cpu_body(move || {
                    while let Some(number) = claims.take(end, find(end)) {
                        claimed.lock().expect("nobody panics with it").push(number);
                    }
                    assert!(claims.left().is_empty(), "it was told that nothing is left");
                })
            };
            (None, vec![claimant(End::Low), claimant(End::High), claimant(End::High)])
        });
        let mut all = claimed.lock().expect("nobody panics with it").clone();
        all.sort_unstable();
        assert_eq!(all, THERE);
    });
}
