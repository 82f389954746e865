//! The options of the benchmark.

use crate::FRAMES;
use crate::phase::{FreeOrder, PoolState};
use crate::round::{Effort, Shown};
use crate::sheet::Sheet;

/// The kind of measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The time of operations.
    Time,
    /// Whether every page has one owner, with real memory.
    Checked,
    /// Whether free frames stay together.
    Fragmentation,
}

/// The arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The kind of measurement.
    pub mode: Mode,
    quick: bool,
    rounds: Option<usize>,
    shown: Shown,
    orders: bool,
    fragmented: bool,
    free: FreeOrder,
    all: bool,
    /// Parts of names to select; empty selects all.
    only: Vec<String>,
}

/// The help text.
pub const USAGE: &str = "\
usage: cargo bench -p mmscale-peers --bench peers -- [OPTION]...
  --quick             3 rounds of a quarter of the operations
  --rounds N          rounds, 15 by default
  --least             the least of the rounds in place of their median
  --only TEXT[,TEXT]  allocators whose name contains one of these, and the first one
  --orders            pair and bulk with blocks of order 0 to 9
  --fragmented        on a pool with 3/4 of the frames allocated at random places
  --free-order ORDER  same, reverse or random: bulk and cross only
  --all               all tables
  --checked           write and check every page: has each one owner?
  --fragmentation     do free frames stay together, and within reach of one CPU?
";

impl Options {
    /// Parses the arguments; those that `cargo bench` adds are ignored.
    ///
    /// # Errors
    /// The first argument that is not valid.
    pub fn parse(args: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            mode: Mode::Time,
            quick: false,
            rounds: None,
            shown: Shown::Median,
            orders: false,
            fragmented: false,
            free: FreeOrder::Same,
            all: false,
            only: Vec::new(),
        };
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} takes a value"));
            match &*arg {
                "--bench" => {}
                "--quick" => options.quick = true,
                "--least" => options.shown = Shown::Least,
                "--orders" => options.orders = true,
                "--fragmented" => options.fragmented = true,
                "--all" => options.all = true,
                "--checked" => options.mode = Mode::Checked,
                "--fragmentation" => options.mode = Mode::Fragmentation,
                "--only" => options.only.extend(value()?.split(',').map(str::to_owned)),
                "--rounds" => {
                    let rounds = value()?.parse().ok().filter(|&rounds| rounds > 0);
                    options.rounds = Some(rounds.ok_or("--rounds takes a number above 0")?);
                }
                "--free-order" => {
                    let name = value()?;
                    let found = FreeOrder::ALL.into_iter().find(|free| free.name() == name);
                    options.free = found.ok_or("--free-order takes same, reverse or random")?;
                }
                other => return Err(format!("no such option: {other}")),
            }
        }
        Ok(options)
    }
    /// Returns the amount of measurement. A check needs no precise times.
    pub fn effort(&self) -> Effort {
        let checked = self.mode == Mode::Checked;
        let rounds = self.rounds.unwrap_or(if self.quick || checked { 3 } else { 15 });
        let operations = if self.quick || checked { 100_000 } else { 400_000 };
        Effort { frames: FRAMES, rounds, operations, shown: self.shown }
    }
    /// Whether the allocator of this name is selected.
    pub fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|text| name.contains(&**text))
    }
    /// Returns the first argument of `--only` that is in none of these names.
    pub fn unknown<'a>(&'a self, names: &[&str]) -> Option<&'a str> {
        let known = |text: &String| names.iter().any(|name| name.contains(&**text));
        self.only.iter().find(|text| !known(text)).map(String::as_str)
    }
    /// Returns the tables.
    pub fn sheets(&self) -> Vec<Sheet> {
        let (fresh, used) = (PoolState::Fresh, PoolState::Fragmented);
        if !self.all {
            let pool = if self.fragmented { used } else { fresh };
            return if self.orders {
                Sheet::all_orders(pool, self.free)
            } else {
                vec![Sheet::programs(pool, self.free)]
            };
        }
        let mut sheets = Vec::new();
        for pool in [fresh, used] {
            sheets.extend(FreeOrder::ALL.map(|free| Sheet::programs(pool, free)));
            sheets.extend(Sheet::all_orders(pool, FreeOrder::Same));
        }
        sheets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options, String> {
        Options::parse(text.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn tables_follow_the_arguments() {
        let columns = |text| {
            let sheets = parse(text).expect("good arguments").sheets();
            sheets.iter().map(|sheet| sheet.columns.len()).collect::<Vec<_>>()
        };
        assert_eq!(columns("--bench"), [8]);
        assert_eq!(columns("--fragmented"), [6]);
        assert_eq!(columns("--free-order random"), [3]);
        assert_eq!(columns("--orders"), [10; 4]);
        assert_eq!(columns("--all").len(), 14);
    }

    #[test]
    fn entries_are_selected_by_parts_of_names_and_unknown_parts_are_found() {
        let names = ["stock", "blockmap", "blockmap, records"];
        let chosen = |text| {
            let options = parse(text).unwrap();
            let wanted = names.map(|name| options.wants(name));
            (wanted, options.unknown(&names).map(str::to_owned))
        };
        assert_eq!(chosen("--quick"), ([true; 3], None));
        assert_eq!(chosen("--only records,stock"), ([true, false, true], None));
        assert_eq!(chosen("--only map --only buddy").1.as_deref(), Some("buddy"));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["--rounds", "--rounds 0", "--rounds x", "--free-order up", "--what"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse("--quick").map(|options| options.effort().rounds), Ok(3));
        assert_eq!(parse("--quick --rounds 7").map(|options| options.effort().rounds), Ok(7));
        assert_eq!(parse("").map(|options| options.effort().shown), Ok(Shown::Median));
        assert_eq!(parse("--least").map(|options| options.effort().shown), Ok(Shown::Least));
    }
}
