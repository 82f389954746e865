//! State that a program inherits does not change a run: each test starts this program again, with
//! such a state.

use mmscale_linux::{Config, Linux, run};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

/// Set in a program that was started again.
const INSIDE: &str = "MMSCALE_TEST_INSIDE";

fn config() -> Config {
    let (memory_bytes, limit_ns) = (64 << 20, 120_000_000_000);
    Config { cpus: 1, memory_bytes, processes: 4, limit_ns, interrupt: None }
}

/// Runs a test of this file again in a process that `prepare` has changed before.
fn again(test: &str, prepare: fn()) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("this program has a file"));
    command.args([test, "--exact", "--nocapture"]).env(INSIDE, "yes");
    // SAFETY: `prepare` makes one system call.
    unsafe {
        command.pre_exec(move || {
            prepare();
            Ok(())
        });
    }
    command.output().expect("this program starts again")
}

fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

#[test]
fn a_run_ends_where_ends_of_children_were_ignored() {
    if is_inside() {
        let outcome = run(&config(), Box::new(|_: &Linux| {}));
        println!("outcome: {:?}", outcome.map(|_| ()));
        return;
    }
    // SAFETY: no handler is set.
    let ignore = || _ = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    let output = again("a_run_ends_where_ends_of_children_were_ignored", ignore);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("outcome: Ok(())"), "{said}");
}

#[test]
fn a_layout_in_which_programs_would_unmap_this_one_is_refused() {
    if is_inside() {
        match run(&config(), Box::new(|_: &Linux| {})) {
            Ok(_) => println!("outcome: it ran"),
            Err(why) => println!("outcome: {why}"),
        }
        return;
    }
    // SAFETY: a number; it holds after the next exec.
    let legacy = || _ = unsafe { libc::personality(libc::ADDR_COMPAT_LAYOUT as libc::c_ulong) };
    let output = again("a_layout_in_which_programs_would_unmap_this_one_is_refused", legacy);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    // Other kernels and architectures may still have space above.
    assert!(said.contains("setarch -L") || said.contains("outcome: it ran"), "{said}");
    assert!(!cfg!(target_arch = "x86_64") || said.contains("setarch -L"), "{said}");
}
