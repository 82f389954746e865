//! Options of the commands that derive a profile from what is known of a machine.

use std::path::PathBuf;

use mmscale_harness::Unit;

use super::FileArgs;

const NEW_EXAMPLES: &str = "\
Examples:
  mmscale profile new --base x86-512 --cpus 192 --nodes 2 --smt 2 -o mine.toml
  mmscale profile new --base x86-512 --cpus 192 --nodes 8 --memory 96GiB
  mmscale profile new --base x86-512 --lscpu lscpu.json --latencies lines.csv
  mmscale profile new --base x86-512 --from machine.snap -o mine.toml
  mmscale profile new --base x86-512 --from sosreport-web1-2026-11-02.tar.xz";
const FIT_EXAMPLES: &str = "\
Examples:
  mmscale profile fit --base x86-512 --cpus 192 --rate page_fault1=720k -o mine.toml
  mmscale profile fit --base x86-512 --lscpu lscpu.json --latencies lines.csv \\
      --rate page_fault1=720k --rate mmap1=390k --linux 6.12 -o mine.toml
  mmscale profile fit --base ./mine.toml --rate page_fault1=690k --set bytes=128MiB
  mmscale profile fit --base ./mine.toml --rate ./my-server.mms=52k -o fitted.toml";

/// Known properties of a machine, and the profile that has the other numbers.
#[derive(Debug, clap::Args)]
pub(crate) struct KnownArgs {
    /// The profile from which all other numbers are inherited: a built-in one, or a file
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) base: String,
    /// CPUs, each hardware thread counted; `fit` takes the base's if not given
    #[arg(long, value_name = "N")]
    pub(crate) cpus: Option<usize>,
    /// Memory nodes; the base's if not given
    #[arg(long, value_name = "N")]
    pub(crate) nodes: Option<usize>,
    /// CPUs behind one last-level cache, each hardware thread counted; the base's if not given
    #[arg(long, value_name = "N")]
    pub(crate) cluster: Option<usize>,
    /// Hardware threads of a core; the base's if not given
    #[arg(long, value_name = "N")]
    pub(crate) smt: Option<usize>,
    /// Memory of a node, such as 256GiB; the base's if not given
    #[arg(long, value_name = "SIZE", value_parser = |text: &str| Unit::Bytes.parse_count(text))]
    pub(crate) memory: Option<u64>,
    /// Take CPUs, nodes, caches, threads and kinds of cores from that machine's output of `lscpu -J
    /// -e`, `lscpu -e`, `lscpu -J`, `lscpu` or `numactl -H`; `-` is stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cpus", "nodes"])]
    pub(crate) lscpu: Option<PathBuf>,
    /// Take CPUs, memory, zones, watermarks and page caches from files of that machine: what
    /// `mmscale profile snapshot` makes, or an archive of sosreport (tar, tar.gz, tar.xz,
    /// tar.zst); `-` is stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cpus", "nodes", "memory"])]
    pub(crate) from: Option<PathBuf>,
    /// Take line_*_ns from a matrix of one-way latencies in ns, as `core-to-core-latency --csv`
    /// (nviennot) writes it: medians by distance. Halve round trips first. With --lscpu, rows are
    /// CPUs in Linux's numbering; without, in the order of a profile
    #[arg(long, value_name = "FILE", visible_alias = "pairs")]
    pub(crate) latencies: Option<PathBuf>,
    /// Take latencies whose order contradicts that of the distances, although the CPUs of the rows
    /// are not known
    #[arg(long, requires = "latencies")]
    pub(crate) force: bool,
    /// A description of the machine
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    #[command(flatten)]
    pub(crate) file: FileArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = NEW_EXAMPLES)]
pub(crate) struct NewArgs {
    #[command(flatten)]
    pub(crate) known: KnownArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = FIT_EXAMPLES)]
pub(crate) struct FitArgs {
    /// A rate that was measured on the machine: operations a second of one PROGRAM on one CPU, such
    /// as page_fault1=720k or brk1=2.1M. PROGRAM is a script (`mmscale list`), one of the gallery,
    /// or a file (`./NAME.mms`); may be repeated
    #[arg(long = "rate", value_name = "PROGRAM=RATE")]
    pub(crate) rates: Vec<String>,
    /// The version of Linux on which the rates were measured, 5.0 to 7.3 (mmscale list linux): the
    /// programs run with its mechanisms
    #[arg(long, value_name = "VERSION")]
    pub(crate) linux: Option<String>,
    /// Set a parameter of the programs as it was in the measurement, such as bytes=128MiB; applies
    /// to the programs that have it, and may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", allow_hyphen_values = true)]
    pub(crate) set: Vec<String>,
    #[command(flatten)]
    pub(crate) known: KnownArgs,
}
