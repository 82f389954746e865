//! `cargo xtask COMMAND`: checks that the compiler does not make.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use xtask::tables::Mode;

const USAGE: &str = "usage: cargo xtask COMMAND

  tidy     house rules: sizes, banned calls, crate direction, module
           circles, pages, links
  objects  compiles the BPF programs and the plugin of QEMU;
           with --check: verifies the compiled files
  tables DIR..
           checks the marked tables of pages against the documents in
           these folders, or with --run, against those of the runs of
           testing/tables.txt; with --write: updates the tables
  differ [--for TIME | --cases N] [--seed N]
           random runs in ways that must agree: lazy and naive schedule,
           release and a build with assertions; reduces cases that differ
  kernels [--quick] [--cpus N,..] [--kernel IMAGE] [--program FILE]
          [--icount]
           boots kernels of Debian in an emulator, and checks that mmscale
           works on them; --quick: that one accepts the BPF programs;
           --icount: time passes with instructions (not on Linux 6.1)
  fuzz TARGET|all [--for TIME | --cases N] [--seed N] [--case SEED/N]
           random scripts, documents, profiles and reports (the targets) for
           the code that reads them: no panic, no hang, bounded memory
  planted [--only PATTERN] [--quick] [--list]
           runs the tests with one protocol error at a time enabled, and
           reports which test catches which
  plain [PATH.. | --phrases]
           lists hits of the phrases that the rule `plain` refuses, below
           paths; with --phrases: lists the phrases
  pages    writes the man pages and shell completions in packaging/
  dist     makes the files of a release in target/dist: a static binary,
           packages for Debian and Python, a list of crates, sums
  no-std   builds the crates of a kernel into a program without std,
           and runs it

exit codes: 0 success, 1 a check failed, 2 the call was wrong";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let root = xtask::root();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy(&root),
        ["objects"] => told("objects", xtask::objects::build(&root)),
        ["objects", "--check"] => told("objects", xtask::objects::check(&root)),
        ["tables", "--run"] => told("tables", xtask::tables::run_all(&root, Mode::Check)),
        ["tables", "--run", "--write"] | ["tables", "--write", "--run"] => {
            told("tables", xtask::tables::run_all(&root, Mode::Write))
        }
        ["tables", "--write", ref folders @ ..] if !folders.is_empty() => {
            told("tables", tables(&root, folders, Mode::Write))
        }
        ["tables", ref folders @ ..] if !folders.is_empty() => {
            told("tables", tables(&root, folders, Mode::Check))
        }
        ["differ", ref args @ ..] => told("differ", xtask::differ::run(&root, args)),
        ["kernels", ref args @ ..] => told("kernels", xtask::kernels::run(&root, args)),
        ["fuzz", ref args @ ..] => told("fuzz", xtask::fuzz::run(&root, args)),
        ["planted", ref args @ ..] => told("planted", xtask::planted::run(&root, args)),
        ["plain", "--phrases"] => told("plain", Ok(xtask::plain::phrases())),
        ["plain", ref paths @ ..] => told("plain", xtask::plain::list(&root, paths)),
        ["pages"] => told("pages", xtask::pages::write(&root)),
        ["dist"] => told("dist", xtask::dist::run(&root)),
        ["no-std"] => told("no-std", xtask::no_std::check(&root)),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn tables(root: &Path, folders: &[&str], mode: Mode) -> Result<String, String> {
    let folders: Vec<PathBuf> = folders.iter().map(PathBuf::from).collect();
    xtask::tables::run(root, &folders, mode)
}

fn told(command: &str, result: Result<String, String>) -> ExitCode {
    match result {
        Ok(done) => {
            println!("{done}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{command}: {why}");
            ExitCode::FAILURE
        }
    }
}

fn tidy(root: &Path) -> ExitCode {
    let tree = match xtask::tidy::Tree::read(root) {
        Ok(tree) => tree,
        Err(why) => {
            eprintln!("tidy: reading {}: {why}", root.display());
            return ExitCode::FAILURE;
        }
    };
    let findings = xtask::tidy::check(&tree);
    for finding in &findings {
        eprintln!("{finding}");
    }
    if findings.is_empty() {
        println!("tidy: {} files, {} rules, all kept", tree.len(), xtask::tidy::RULES.len());
        ExitCode::SUCCESS
    } else {
        eprintln!("tidy: {} findings", findings.len());
        ExitCode::FAILURE
    }
}
