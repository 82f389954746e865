//! `cargo xtask mutants`: reports which test catches which mutant of a sample.
//!
//! `cargo mutants` lists small changes of the memory manager, such as `<` for `<=` or a function
//! that returns at its start. A sample of them is compiled into a copy of the tree, as switches
//! ([`weave`]). Then every test runs once and records the mutants that it reaches. For each mutant
//! the tests that reach it run until one fails. A mutant that cannot be switched, as in a `const
//! fn`, is built alone. All tests that can reach it run, those of its crate first.
//!
//! Results are saved below the target folder after each mutant.

mod list;
mod scratch;
mod table;
mod tests;
mod weave;

use crate::planted::build::Suite;
use list::Mutant;
use scratch::Scratch;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;
use table::{Row, Verdict};
use tests::{End, Test};

pub(crate) const USAGE: &str = "usage: cargo xtask mutants [--sample N] [--seed N] [--resume]

  --sample N  how many mutants: 200 if not given
  --seed N    which ones: the same seed, the same mutants; 1 if not given
  --resume    takes over what an earlier run found caught or not to compile;
              mutants that were missed run again";

/// The packages whose tests run, those of [`Round::Own`] first.
const PACKAGES: [&str; 5] = ["arch", "frames", "mm", "interleave", "conformance"];

/// A selection of tests. All mutants have the first round before any has the second, in which tests
/// take longer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    /// The tests of the mutated crates.
    Own,
    /// The tests of the crates in `testing`.
    Others,
}

impl Round {
    fn has(self, suite: &Suite) -> bool {
        list::CRATES.contains(&suite.krate) == (self == Self::Own)
    }
    /// Returns the packages whose tests run for a mutant that is built alone.
    fn packages(self, mutant: &Mutant) -> &'static [&'static str] {
        let own = list::CRATES.iter().position(|krate| *krate == mutant.krate()).unwrap_or(0);
        match self {
            Self::Own => &PACKAGES[own..list::CRATES.len()],
            Self::Others => &PACKAGES[list::CRATES.len()..],
        }
    }
}

/// The arguments of the command.
#[derive(PartialEq, Eq, Debug)]
struct Asked {
    sample: usize,
    seed: u64,
    resume: bool,
}

impl Asked {
    fn parse(args: &[&str]) -> Option<Self> {
        let (mut asked, mut args) = (Self { sample: 200, seed: 1, resume: false }, args.iter());
        while let Some(&arg) = args.next() {
            match arg {
                "--sample" => asked.sample = args.next()?.parse().ok().filter(|&size| size > 0)?,
                "--seed" => asked.seed = args.next()?.parse().ok()?,
                "--resume" => asked.resume = true,
                _ => return None,
            }
        }
        Some(asked)
    }
}

/// Runs the command with the arguments `args`.
///
/// # Errors
/// Fails if no test caught some mutant, and names these mutants; or if the tests could not run.
pub fn run(root: &Path, args: &[&str]) -> Result<String, String> {
    let asked = Asked::parse(args).ok_or_else(|| USAGE.to_owned())?;
    let all = list::all(root)?;
    let listed = all.len();
    let sample = list::sample(all, asked.sample, asked.seed);
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let folder = root.join(target).join("mutants");
    fs::create_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let mut run = Run::new(&folder, &sample, asked.resume);
    eprintln!(
        "mutants: {} of {listed}, {} of them looked at before; results in {}",
        sample.len(),
        run.rows.len(),
        run.results.display(),
    );
    let scratch = Scratch::new(root, &folder, &sample)?;
    let alone = run.woven(&scratch)?;
    let suites = scratch.build(&PACKAGES)?;
    let tests = run.measured(&suites)?;
    tests::exist(&suites, &tests)?;
    for round in [Round::Own, Round::Others] {
        for id in (0..sample.len()).filter(|id| !alone.contains(id)) {
            run.judge(id, round, |mutant| {
                let reaching: Vec<&Test> =
                    tests.iter().filter(|test| test.reaches.contains(&id)).collect();
                caught(&suites, &reaching, round, mutant, &id.to_string())
            })?;
        }
    }
    let reaching: Vec<&Test> = tests.iter().collect();
    for &id in &alone {
        for round in [Round::Own, Round::Others] {
            run.judge(id, round, |mutant| {
                scratch.only(Some(mutant))?;
                let Ok(suites) = scratch.build(round.packages(mutant)) else {
                    return Ok(Verdict::Unbuildable);
                };
                tests::exist(&suites, &tests)?;
                caught(&suites, &reaching, round, mutant, "")
            })?;
        }
    }
    scratch.only(None)?;
    let rows: Vec<&Row> = sample.iter().filter_map(|mutant| run.rows.get(&mutant.name)).collect();
    println!("{}", table::markdown(&rows));
    table::verdict(&rows)
}

/// The results, by the mutants' names.
type Rows = BTreeMap<String, Row>;

/// A run and its saved state.
struct Run<'a> {
    folder: &'a Path,
    results: PathBuf,
    sample: &'a [Mutant],
    rows: Rows,
}

impl<'a> Run<'a> {
    fn new(folder: &'a Path, sample: &'a [Mutant], resume: bool) -> Self {
        let results = folder.join("results.json");
        let mut rows: Rows = if resume { read(&results).unwrap_or_default() } else { Rows::new() };
        rows.retain(|name, row| {
            row.verdict.is_settled() && sample.iter().any(|mutant| mutant.name == *name)
        });
        Self { folder, results, sample, rows }
    }
    /// Weaves the mutants of the sample into the sources. Returns those that cannot be switched.
    fn woven(&self, scratch: &Scratch<'_>) -> Result<BTreeSet<usize>, String> {
        let kept = self.folder.join("alone.json");
        let known: BTreeSet<String> = read(&kept).unwrap_or_default();
        let ids = 0..self.sample.len();
        let mut alone = ids.filter(|&id| known.contains(&self.sample[id].name)).collect();
        scratch.weave(&mut alone)?;
        let names = alone.iter().map(|&id| &self.sample[id].name);
        write(&kept, &names.collect::<Vec<_>>())?;
        Ok(alone)
    }
    /// Returns the tests, with their run times and the mutants that they reach. Runs only
    /// tests of programs that were built after an earlier run.
    fn measured(&self, suites: &[Suite]) -> Result<Vec<Test>, String> {
        let kept = self.folder.join("tests.json");
        let made = |path: &Path| fs::metadata(path).and_then(|of| of.modified()).ok();
        let mut tests: Vec<Test> = read(&kept).unwrap_or_default();
        for suite in suites.iter().filter(|suite| made(&suite.program) >= made(&kept)) {
            tests.retain(|test| test.suite != suite.name);
            tests.extend(tests::measure(suite, &self.folder.join("reached"))?);
        }
        write(&kept, &tests)?;
        Ok(tests)
    }
    /// Runs a round for one mutant, unless an earlier result makes it unnecessary.
    fn judge(
        &mut self,
        id: usize,
        round: Round,
        verdict: impl FnOnce(&Mutant) -> Result<Verdict, String>,
    ) -> Result<(), String> {
        let mutant = &self.sample[id];
        let before = self.rows.get(&mutant.name);
        if before.is_some_and(|row| round == Round::Own || row.verdict.is_settled()) {
            return Ok(());
        }
        let since = Instant::now();
        let mut verdict = verdict(mutant)?;
        if let (Verdict::Unreached, Some(before)) = (&verdict, before) {
            verdict = before.verdict.clone();
        }
        let seconds = since.elapsed().as_secs_f64() + before.map_or(0.0, |row| row.seconds);
        let row = Row { name: mutant.name.clone(), verdict, seconds };
        eprintln!("mutants: {} of {}: {}", id + 1, self.sample.len(), row.short());
        self.rows.insert(mutant.name.clone(), row);
        write(&self.results, &self.rows)
    }
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn write(path: &Path, content: &impl serde::Serialize) -> Result<(), String> {
    let text = serde_json::to_vec_pretty(content).map_err(|why| why.to_string())?;
    fs::write(path, text).map_err(|why| format!("{}: {why}", path.display()))
}

/// Runs the tests of a round until one fails. `switch` is the value of `MMSCALE_MUTANT`, which
/// enables the mutant.
fn caught(
    suites: &[Suite],
    tests: &[&Test],
    round: Round,
    mutant: &Mutant,
    switch: &str,
) -> Result<Verdict, String> {
    let suite_of = |test: &Test| suites.iter().find(|suite| suite.name == test.suite);
    let mut tests: Vec<(&Suite, &Test)> =
        tests.iter().filter_map(|test| Some((suite_of(test)?, *test))).collect();
    tests.retain(|(suite, _)| round.has(suite));
    tests::sort(&mut tests, mutant);
    let mut verdict = Verdict::Unreached;
    for (suite, test) in tests {
        let by = || format!("{} `{}`", test.suite, test.name);
        verdict = match test.run(suite, ("MMSCALE_MUTANT", switch))? {
            End::Passed => Verdict::Missed,
            End::Failed => return Ok(Verdict::Caught(by())),
            End::Hung => return Ok(Verdict::Timeout(by())),
        };
    }
    Ok(verdict)
}
