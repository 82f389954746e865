//! The arguments of the command, and of its workers.

use std::path::Path;
use std::time::Duration;

use super::Search;
use crate::targets::NAMES;
use crate::worker::Cases;

/// The usage of the command.
pub const USAGE: &str = "usage:
  cargo xtask fuzz TARGET|all [--for TIME | --cases N] [--seed N] [--first N]
  cargo xtask fuzz TARGET --case SEED/N

  TARGET           script, document, profile or report
  --for TIME       how long, all targets together: 90s, 10m, 2h; 1m if nothing
                   is given
  --cases N        how many cases of each target instead
  --seed N         which cases: the same seed, the same cases; 1 if not given
  --first N        the number of the first case, to continue a search
  --case SEED/N    one case again, whose input is kept
  --program FILE   this build of mmscale-fuzz; nothing is built";

/// The end of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    After(Duration),
    Cases(u64),
}

/// An order of the command line.
pub(super) enum Order<'a> {
    Help,
    Search(Search),
    /// The work of a worker.
    Work {
        cases: Cases<'a>,
        folder: &'a Path,
        seeds: &'a Path,
    },
    /// Makes the files that inputs start from.
    Prepare(&'a Path),
}

pub(super) fn parse<'a>(args: &[&'a str]) -> Result<Order<'a>, String> {
    let number = |text: &str| text.parse().map_err(|_| format!("{text} is not a number\n{USAGE}"));
    match *args {
        ["--help" | "-h"] => Ok(Order::Help),
        ["prepare", seeds] => Ok(Order::Prepare(Path::new(seeds))),
        ["worker", target, seed, from, until, folder, seeds] => {
            let (folder, seeds) = (Path::new(folder), Path::new(seeds));
            let numbers = number(from)?..number(until)?;
            let cases = Cases { target, seed: number(seed)?, numbers };
            Ok(Order::Work { cases, folder, seeds })
        }
        [targets, ref options @ ..] => search(targets, options),
        [] => Err(USAGE.to_owned()),
    }
}

fn search(targets: &str, options: &[&str]) -> Result<Order<'static>, String> {
    let wrong = |what: String| format!("{what}\n{USAGE}");
    let targets: Vec<&'static str> =
        NAMES.into_iter().filter(|name| targets == "all" || targets == *name).collect();
    if targets.is_empty() {
        return Err(wrong("there is no such target".to_owned()));
    }
    let end = End::After(Duration::from_secs(60));
    let mut search = Search { end, ..Search::of(&targets, 1, 0) };
    let mut options = options.iter();
    while let Some(option) = options.next() {
        let value = options.next().ok_or_else(|| wrong(format!("{option} needs a value")))?;
        let whole = |text: &str| {
            text.parse::<u64>().map_err(|_| wrong(format!("{option} {value}: not a number")))
        };
        match *option {
            "--for" => search.end = End::After(time(value).map_err(wrong)?),
            "--cases" => search.end = End::Cases(whole(value)?),
            "--seed" => search.seed = whole(value)?,
            "--first" => search.first = whole(value)?,
            "--case" => {
                let (seed, number) = value
                    .split_once('/')
                    .ok_or_else(|| wrong(format!("{option} {value}: give SEED/NUMBER")))?;
                (search.seed, search.first) = (whole(seed)?, whole(number)?);
                search.end = End::Cases(1);
            }
            _ => return Err(wrong(format!("unknown option {option}"))),
        }
    }
    Ok(Order::Search(search))
}

fn time(text: &str) -> Result<Duration, String> {
    let unit = |suffix: &str, seconds: u64| {
        let count: u64 = text.strip_suffix(suffix)?.parse().ok()?;
        count.checked_mul(seconds)
    };
    let seconds = unit("s", 1).or_else(|| unit("m", 60)).or_else(|| unit("h", 3600));
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| format!("--for {text}: not a time; allowed: such as 90s, 10m or 2h"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_calls_are_refused_with_the_usage() {
        let wrong: [&[&str]; 6] = [
            &[],
            &["scripts"],
            &["script", "--for", "10"],
            &["all", "--cases"],
            &["script", "--case", "7"],
            &["script", "--fore", "1m"],
        ];
        for args in wrong {
            let error = parse(args).err().expect("it is wrong");
            assert!(error.contains("cargo xtask fuzz TARGET"), "{error}");
        }
    }

    #[test]
    fn a_call_chooses_targets_and_cases() {
        let Ok(Order::Search(all)) = parse(&["all", "--seed", "4"]) else { panic!("a search") };
        assert_eq!((all.targets.len(), all.seed, all.end), (4, 4, End::After(time("1m").unwrap())));
        let Ok(Order::Search(one)) = parse(&["script", "--case", "7/12"]) else {
            panic!("a search")
        };
        assert_eq!((one.targets, one.seed, one.first), (vec!["script"], 7, 12));
        assert_eq!(one.end, End::Cases(1));
    }
}
