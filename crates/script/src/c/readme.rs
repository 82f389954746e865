//! The text that goes with a program, and its Makefile.

use super::ProgramSpec;
use super::near::nearest;
use super::text::{filled, plain};
use std::fmt::Write as _;

/// Columns of a mail.
const COLUMNS: usize = 72;

/// The Makefile.
pub(super) const MAKEFILE: &str = "\
CFLAGS ?= -O2 -g -Wall -Wextra

all: repro

repro: repro.c
	$(CC) $(CFLAGS) -std=gnu11 -pthread -o $@ $< $(LDFLAGS)

run: repro
	./repro $(ARGS)

clean:
	rm -f repro

.PHONY: all run clean
";

fn paragraph(out: &mut String, text: &str) {
    filled(&plain(text), COLUMNS).iter().for_each(|line| _ = writeln!(out, "{line}"));
    out.push('\n');
}

fn command(out: &mut String, commands: &[&str]) {
    commands.iter().for_each(|command| _ = writeln!(out, "    {command}"));
    out.push('\n');
}

/// Returns the README. `summary` is the question, and `has_threads` says whether tasks are threads.
pub(super) fn readme(how: &ProgramSpec<'_>, summary: Option<&str>, has_threads: bool) -> String {
    let mut out = String::new();
    let title = summary.map_or_else(String::new, |summary| format!(": {summary}"));
    paragraph(&mut out, &format!("{}{title}", how.name));
    paragraph(
        &mut out,
        "repro.c makes the same system calls as the workload script in its first comment: \
         tasks on their CPUs, a common start, a warm-up, then operations per second, each \
         second, and their median.",
    );
    if !how.remarks.is_empty() {
        paragraph(&mut out, "What it does not have:");
        out.truncate(out.len() - 1);
        for remark in how.remarks {
            let lines = filled(&plain(remark), COLUMNS - 2);
            for (nth, line) in lines.iter().enumerate() {
                _ = writeln!(out, "{}{line}", if nth == 0 { "- " } else { "  " });
            }
        }
        out.push('\n');
    }
    paragraph(&mut out, "Build and run, on all CPUs or on 8 for 30 seconds:");
    command(&mut out, &["make", "make run", "./repro -n 8 -t 30"]);
    if let Some((near, source)) = nearest(how.name, has_threads) {
        paragraph(&mut out, "The nearest benchmark, with N tasks:");
        command(&mut out, &[&near, &format!("({source})")]);
    }
    paragraph(&mut out, "On a kernel of yours with 8 CPUs, by virtme-ng, in its source:");
    command(
        &mut out,
        &[
            "vng --run arch/x86/boot/bzImage --cpus 8 --memory 8G \\",
            "    --user root -- /path/to/repro -n 8 -t 30",
        ],
    );
    paragraph(&mut out, "With QEMU alone, as the only program:");
    command(
        &mut out,
        &[
            "make clean all LDFLAGS=-static",
            "mkdir -p root && cp repro root/init",
            "(cd root && echo init | cpio -o -H newc) > initrd.cpio",
            "qemu-system-x86_64 -enable-kvm -cpu host -smp 8 -m 8G \\",
            "    -kernel bzImage -initrd initrd.cpio -nographic -no-reboot \\",
            "    -append \"console=ttyS0 quiet panic=-1 -- -n 8 -t 30\"",
        ],
    );
    paragraph(&mut out, "There the end of the program is a panic of the kernel, which ends QEMU.");
    paragraph(&mut out, "The same workload on a simulated machine (mmscale):");
    let simulated: Vec<&str> = how.simulated_by.iter().map(String::as_str).collect();
    command(&mut out, &simulated);
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}
