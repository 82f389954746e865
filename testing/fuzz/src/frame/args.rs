//! The arguments of the command, and of its workers.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;

use super::Search;
use crate::targets::NAMES;

/// Random inputs for the code that reads scripts, documents, profiles and reports
#[derive(clap::Parser)]
#[command(
    bin_name = "cargo xtask fuzz",
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "cargo xtask fuzz .. --program FILE: this build of mmscale-fuzz; nothing is built"
)]
pub(super) struct FuzzArgs {
    #[command(subcommand)]
    pub(super) order: Option<Order>,
    /// The code that is tested
    #[arg(required = true)]
    #[arg(value_parser = PossibleValuesParser::new(NAMES.into_iter().chain(["all"])))]
    target: Option<String>,
    /// How long, all targets together: 90s, 10m, 2h
    #[arg(long = "for", value_name = "TIME", default_value = "1m")]
    #[arg(value_parser = humantime::parse_duration)]
    time: Duration,
    /// How many cases of each target instead
    #[arg(long, value_name = "N", conflicts_with = "time")]
    cases: Option<u64>,
    /// Which cases: the same seed, the same cases
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The number of the first case, to continue a search
    #[arg(long, value_name = "N", default_value_t = 0)]
    first: u64,
    /// One case again, whose input is kept
    #[arg(long, value_name = "SEED/N", value_parser = seed_and_number)]
    #[arg(conflicts_with_all = ["time", "cases", "seed", "first"])]
    case: Option<(u64, u64)>,
}

/// Orders to processes that a search starts.
#[derive(clap::Subcommand)]
#[command(disable_help_subcommand = true)]
pub(super) enum Order {
    /// The work of a worker
    #[command(hide = true)]
    Worker { target: String, seed: u64, from: u64, until: u64, folder: PathBuf, seeds: PathBuf },
    /// Make the files that inputs start from
    #[command(hide = true)]
    Prepare { seeds: PathBuf },
}

/// The end of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    After(Duration),
    Cases(u64),
}

impl FuzzArgs {
    pub(super) fn search(&self) -> Search {
        let is_meant =
            |name: &&str| self.target.as_deref().is_some_and(|t| [name, "all"].contains(&t));
        let targets: Vec<&'static str> = NAMES.into_iter().filter(is_meant).collect();
        if let Some((seed, first)) = self.case {
            return Search { first, ..Search::of(&targets, seed, 1) };
        }
        let end = self.cases.map_or(End::After(self.time), End::Cases);
        Search { end, first: self.first, ..Search::of(&targets, self.seed, 0) }
    }
}

fn seed_and_number(text: &str) -> Result<(u64, u64), String> {
    let parts =
        text.split_once('/').and_then(|(seed, n)| Some((seed.parse().ok()?, n.parse().ok()?)));
    parts.ok_or_else(|| "give SEED/N, such as 1/250".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn parse(args: &str) -> Result<FuzzArgs, clap::Error> {
        FuzzArgs::try_parse_from(["fuzz"].into_iter().chain(args.split_whitespace()))
    }

    #[test]
    fn wrong_calls_are_refused() {
        for args in ["", "scripts", "script --for 10", "all --cases", "script --case 7"] {
            assert!(parse(args).is_err(), "{args}");
        }
        assert!(parse("script --case 7/1 --cases 3").is_err());
    }

    #[test]
    fn a_call_chooses_targets_and_cases() {
        let all = parse("all --seed 4").unwrap().search();
        let minute = End::After(Duration::from_secs(60));
        assert_eq!((all.targets.len(), all.seed, all.end), (crate::NAMES.len(), 4, minute));
        let one = parse("script --case 7/12").unwrap().search();
        assert_eq!((one.targets, one.seed, one.first), (vec!["script"], 7, 12));
        assert_eq!(one.end, End::Cases(1));
    }

    #[test]
    fn a_worker_has_an_order_and_no_search() {
        let Some(Order::Worker { target, seed, from, until, .. }) =
            parse("worker script 4 250 500 a b").unwrap().order
        else {
            panic!("a worker")
        };
        assert_eq!((target.as_str(), seed, from..until), ("script", 4, 250..500));
    }
}
