//! `cargo xtask COMMAND`: checks that the compiler does not make.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::differ::DifferArgs;
use xtask::host_cost::HostCostArgs;
use xtask::kernels::KernelsArgs;
use xtask::metal::MetalArgs;
use xtask::planted::PlantedArgs;
use xtask::tables::Mode;
use xtask::takers::TakersArgs;

/// Checks that the compiler does not make
#[derive(Parser)]
#[command(
    bin_name = "cargo xtask",
    after_help = "exit codes: 0 success, 1 a check failed, 2 the call was wrong"
)]
struct Call {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// House rules: sizes, banned calls, crate direction, module circles, pages, links
    Tidy,
    /// Compile the BPF programs and the plugins of QEMU
    Objects {
        /// Only verify the compiled files
        #[arg(long)]
        check: bool,
    },
    /// Check the marked tables of pages against documents
    Tables {
        /// Folders of documents
        #[arg(value_name = "DIR", required_unless_present = "run")]
        folders: Vec<PathBuf>,
        /// Make the documents first: the runs of testing/tables.txt
        #[arg(long, conflicts_with = "folders")]
        run: bool,
        /// Update the tables
        #[arg(long)]
        write: bool,
    },
    /// Random runs in ways that must agree; reduces cases that differ
    ///
    /// The ways are the lazy and the naive schedule, and for some cases also a build with
    /// assertions.
    Differ(DifferArgs),
    /// Boot kernel images in virtual machines, and check that mmscale works on them
    Kernels(KernelsArgs),
    /// Boot the kernel of testing/metal, which runs the memory manager on bare processors
    Metal(MetalArgs),
    /// Measure what runs cost this computer, from 8 to 4096 simulated CPUs
    HostCost(HostCostArgs),
    /// Compare the functions that take locks with the symbols of kernels
    Takers(TakersArgs),
    /// Random inputs for the code that reads scripts, documents, profiles and reports
    #[command(disable_help_flag = true)]
    Fuzz {
        #[arg(value_name = "OPTION", allow_hyphen_values = true, trailing_var_arg = true)]
        options: Vec<String>,
    },
    /// Run the tests with one protocol error at a time, and report which test catches which
    Planted(PlantedArgs),
    /// List hits of the phrases that the rule `plain` refuses
    Plain {
        /// Only below these paths
        paths: Vec<String>,
        /// List the phrases instead
        #[arg(long, conflicts_with = "paths")]
        phrases: bool,
    },
    /// Write the man pages and shell completions to packaging/
    Pages,
    /// Make the files of a release in target/dist
    ///
    /// A static binary, packages for Debian and Python, a list of crates, sums.
    Dist,
    /// Build the crates of a kernel into a program without std, and run it
    NoStd,
}

fn main() -> ExitCode {
    let root = xtask::root();
    match Call::parse().command {
        Command::Tidy => tidy(&root),
        Command::Objects { check: false } => told("objects", xtask::objects::build(&root)),
        Command::Objects { check: true } => told("objects", xtask::objects::check(&root)),
        Command::Tables { folders, run, write } => {
            let mode = if write { Mode::Write } else { Mode::Check };
            let done = if run {
                xtask::tables::run_all(&root, mode)
            } else {
                xtask::tables::run(&root, &folders, mode)
            };
            told("tables", done)
        }
        Command::Differ(args) => told("differ", xtask::differ::run(&root, &args)),
        Command::Kernels(args) => told("kernels", xtask::kernels::run(&root, &args)),
        Command::Metal(args) => told("metal", xtask::metal::run(&root, &args)),
        Command::HostCost(args) => told("host-cost", xtask::host_cost::run(&root, &args)),
        Command::Takers(args) => told("takers", xtask::takers::run(&root, &args)),
        Command::Fuzz { options } => told("fuzz", xtask::fuzz::run(&root, &words(&options))),
        Command::Planted(args) => told("planted", xtask::planted::run(&root, &args)),
        Command::Plain { phrases: true, .. } => told("plain", Ok(xtask::plain::phrases())),
        Command::Plain { paths, .. } => told("plain", xtask::plain::list(&root, &words(&paths))),
        Command::Pages => told("pages", xtask::pages::write(&root)),
        Command::Dist => told("dist", xtask::dist::run(&root)),
        Command::NoStd => told("no-std", xtask::no_std::check(&root)),
    }
}

fn words(given: &[String]) -> Vec<&str> {
    given.iter().map(String::as_str).collect()
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
