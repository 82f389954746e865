//! The conformance cases on the live kernel: the same cases that the memory manager passes on the
//! simulated machine and on real threads.

use mmscale_conformance::cases;
use mmscale_linux::{Config, Linux, run};
use mmscale_system::{Exit, System, ThreadSpec};

fn config() -> Config {
    // Only a hang takes that long, even on a busy computer.
    Config {
        cpus: 2,
        memory_bytes: 256 << 20,
        processes: 16,
        limit_ns: 300_000_000_000,
        interrupt: None,
    }
}

/// Runs one case in a process of its own.
fn ask(case: fn(&Linux)) -> Result<(), String> {
    let init = move |system: &Linux| {
        let process = system.process(ThreadSpec::on(0), Box::new(case)).expect("there is memory");
        assert_eq!(system.wait(process), Ok(Exit::Returned));
    };
    run(&config(), Box::new(init)).map(|_| ()).map_err(|why| why.to_string())
}

#[test]
fn every_case_holds_on_the_live_kernel() {
    let failed = |case: &mmscale_conformance::Case<Linux>| {
        ask(case.run).err().map(|why| format!("{}: {why}", case.name))
    };
    let failures: Vec<String> = cases::<Linux>().iter().filter_map(failed).collect();
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn a_case_that_does_not_hold_is_reported() {
    fn wrong(system: &Linux) {
        assert_eq!(system.munmap(mmscale_system::Addr(1 << 20), 0), Ok(()), "it is refused");
    }
    let why = ask(wrong).expect_err("it does not hold");
    assert!(why.contains("it is refused") && why.contains("conform.rs"), "{why}");
}
