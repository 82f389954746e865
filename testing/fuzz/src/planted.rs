//! Cases that fail in each of the ways that the frame must find: for its tests.

use crate::call::Calls;
use crate::outcome::Outcome;
use crate::random::Random;
use crate::target::{Input, Target};

pub(crate) struct Planted;

/// The ways in which a case ends.
const WAYS: [&str; 8] =
    ["accepted", "refused", "wrong", "panic", "abort", "overflow", "loop", "memory"];

impl Target for Planted {
    fn input(&self, random: &mut Random) -> Input {
        let way = WAYS[random.below(WAYS.len())];
        Input { extension: "txt", bytes: way.into() }
    }
    fn check(&self, _: &Calls, input: &Input, _: &mut Random) -> Outcome {
        match &*String::from_utf8_lossy(&input.bytes) {
            "accepted" => Outcome::Accepted,
            "refused" => Outcome::Refused("planted".to_owned()),
            "wrong" => Outcome::Wrong("planted".to_owned()),
            "panic" => panic!("planted"),
            "abort" => std::process::abort(),
            "overflow" => Outcome::Wrong(format!("{} is never reached", deeper(1))),
            "loop" => loop {
                std::hint::spin_loop();
            },
            _ => {
                let mut all: Vec<Vec<u8>> = vec![];
                loop {
                    all.push(vec![1; 1 << 20]);
                    std::hint::black_box(&all);
                }
            }
        }
    }
}

/// Calls itself until the stack is full.
#[expect(unconditional_recursion, reason = "the overflow is planted")]
fn deeper(depth: u64) -> u64 {
    let room = std::hint::black_box([depth; 1000]);
    deeper(room[0] + 1) + room[1]
}
