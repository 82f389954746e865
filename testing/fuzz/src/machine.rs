//! Files of other machines: outputs of `lscpu`, snapshots and traces with damage, made into
//! profiles, limits and rates.

use crate::call::Calls;
use crate::mutate;
use crate::outcome::Outcome;
use crate::random::Random;
use crate::target::{Input, Target};

/// Files that commands read, as people send them.
const SAMPLES: [&str; 7] = [
    include_str!("../../../crates/cli/tests/cmd/profile.in/lscpu.txt"),
    include_str!("../../../crates/cli/tests/cmd/profile.in/phone.txt"),
    include_str!("../../../crates/cli/tests/cmd/profile.in/numactl.txt"),
    include_str!("../../../crates/cli/tests/cmd/profile.in/lscpu-e.json"),
    include_str!("../../../crates/cli/tests/cmd/profile.in/machine.snap"),
    include_str!("../../../crates/cli/tests/cmd/explain.in/b.snap"),
    include_str!("../../../crates/cli/tests/cmd/explain.in/trace.txt"),
];

pub(crate) struct Machines;

impl Target for Machines {
    fn input(&self, random: &mut Random) -> Input {
        let samples: Vec<&[u8]> = SAMPLES.into_iter().map(str::as_bytes).collect();
        let mut bytes = samples[random.below(samples.len())].to_vec();
        mutate::text(random, &mut bytes, &samples);
        Input { extension: "txt", bytes }
    }
    fn check(&self, calls: &Calls, input: &Input, random: &mut Random) -> Outcome {
        let file = calls.file("case.txt", &input.bytes);
        let base = random.one_of(&["x86-2", "phone", "genoa"]);
        let new = ["profile", "new", "--base", base];
        match random.below(5) {
            0 => calls.call(&[&new[..], &["--lscpu", &file]].concat()).outcome(),
            1 => calls.call(&[&new[..], &["--from", &file]].concat()).outcome(),
            2 => calls.call(&["list", "limits", "--from", &file]).outcome(),
            3 => calls.call(&["explain", &file]).outcome(),
            _ => {
                let whole = calls.file("whole.txt", SAMPLES[4].as_bytes());
                calls.call(&["explain", &whole, &file, "--seconds", "2"]).outcome()
            }
        }
    }
}
