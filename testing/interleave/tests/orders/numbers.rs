//! Numbers allocated and freed on several CPUs: none is allocated twice, and none is lost.

use mmscale_arch::sync::Numbers;
use mmscale_interleave::{Model, check, cpu_body, run};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

const CPUS: usize = 3;

struct Shared {
    numbers: Numbers<Model>,
    /// The number of numbers.
    count: usize,
    out: [AtomicU32; CPUS],
    done: AtomicU32,
}

impl Shared {
    fn take_and_give(&self) {
        for _ in 0..2 {
            let Some(number) = self.numbers.take() else { continue };
            assert_eq!(self.out[number].swap(1, SeqCst), 0, "{number} is out twice");
            self.out[number].store(0, SeqCst);
            self.numbers.give(number);
        }
        if self.done.fetch_add(1, SeqCst) as usize == CPUS - 1 {
            let all = [(); CPUS + 1].map(|()| self.numbers.take());
            assert_eq!(all.iter().flatten().count(), self.count, "numbers are lost: {all:?}");
        }
    }
}

#[test]
fn no_number_is_out_twice_and_none_is_lost() {
    // As many as CPUs, or one less: then a CPU without one takes another CPU's.
    for count in [CPUS, CPUS - 1] {
        check(1500, move || scenario(count));
    }
}

fn scenario(count: usize) {
    run(CPUS, || {
        let shared = Arc::new(Shared {
            numbers: Numbers::new(0..count),
            count,
            out: Default::default(),
            done: AtomicU32::new(0),
        });
        let body = |_| {
            let shared = Arc::clone(&shared);
            cpu_body(move || shared.take_and_give())
        };
        (None, (0..CPUS).map(body).collect())
    });
}
