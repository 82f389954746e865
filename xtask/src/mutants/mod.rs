//! `cargo xtask mutants`: which test catches which mutant of a sample.
//!
//! `cargo mutants` lists small changes of the memory manager, such as `<` for `<=` or a function
//! that returns at once. A sample of them is compiled into a copy of the tree, as switches
//! ([`weave`]); then every test runs once, which tells the mutants that it reaches, and each mutant
//! gets the tests that reach it until one fails. A mutant that cannot be switched, as in a `const
//! fn`, is built alone, and gets all tests of its crate first.
//!
//! Results are kept below the target folder after each mutant.

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

/// The packages whose tests run.
const PACKAGES: [&str; 5] = ["arch", "frames", "mm", "interleave", "conformance"];

/// What was asked for.
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

/// Runs what `args` ask for.
///
/// # Errors
/// The mutants that no test caught, or why nothing could be run.
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
    let mut alone = BTreeSet::new();
    scratch.weave(&mut alone)?;
    let suites = scratch.build(&PACKAGES)?;
    let tests = run.measured(&suites)?;
    for id in (0..sample.len()).filter(|id| !alone.contains(id)) {
        run.judge(id, |mutant| switched(&suites, &tests, mutant, id))?;
    }
    for &id in &alone {
        run.judge(id, |mutant| built(&scratch, &tests, mutant))?;
    }
    scratch.only(None)?;
    let rows: Vec<&Row> = sample.iter().filter_map(|mutant| run.rows.get(&mutant.name)).collect();
    println!("{}", table::markdown(&rows));
    table::verdict(&rows)
}

/// What was found, by the mutants' names.
type Rows = BTreeMap<String, Row>;

/// A run and what it keeps.
struct Run<'a> {
    folder: &'a Path,
    results: PathBuf,
    sample: &'a [Mutant],
    rows: Rows,
}

impl<'a> Run<'a> {
    fn new(folder: &'a Path, sample: &'a [Mutant], resume: bool) -> Self {
        let results = folder.join("results.json");
        let kept = fs::read(&results).ok().filter(|_| resume);
        let mut rows: Rows =
            kept.and_then(|kept| serde_json::from_slice(&kept).ok()).unwrap_or_default();
        rows.retain(|name, row| {
            row.verdict.is_settled() && sample.iter().any(|mutant| mutant.name == *name)
        });
        Self { folder, results, sample, rows }
    }
    /// How long the tests take and what they reach: as in an earlier run of the same programs, if
    /// there was one.
    fn measured(&self, suites: &[Suite]) -> Result<Vec<Test>, String> {
        let kept = self.folder.join("tests.json");
        let made = |path: &Path| fs::metadata(path).and_then(|of| of.modified()).ok();
        if suites.iter().all(|suite| made(&suite.program) < made(&kept))
            && let Some(tests) =
                fs::read(&kept).ok().and_then(|of| serde_json::from_slice(&of).ok())
        {
            return Ok(tests);
        }
        let tests = tests::measure(suites, &self.folder.join("reached"))?;
        write(&kept, &tests)?;
        Ok(tests)
    }
    /// Looks at one mutant, unless that was done before.
    fn judge(
        &mut self,
        id: usize,
        verdict: impl FnOnce(&Mutant) -> Result<Verdict, String>,
    ) -> Result<(), String> {
        let mutant = &self.sample[id];
        if self.rows.contains_key(&mutant.name) {
            return Ok(());
        }
        let since = Instant::now();
        let verdict = verdict(mutant)?;
        let row =
            Row { name: mutant.name.clone(), verdict, seconds: since.elapsed().as_secs_f64() };
        eprintln!("mutants: {} of {}: {}", self.rows.len() + 1, self.sample.len(), row.short());
        self.rows.insert(mutant.name.clone(), row);
        write(&self.results, &self.rows)
    }
}

fn write(path: &Path, content: &impl serde::Serialize) -> Result<(), String> {
    let text = serde_json::to_vec_pretty(content).map_err(|why| why.to_string())?;
    fs::write(path, text).map_err(|why| format!("{}: {why}", path.display()))
}

/// What becomes of a mutant that is switched on in the programs of all.
fn switched(
    suites: &[Suite],
    tests: &[Test],
    mutant: &Mutant,
    id: usize,
) -> Result<Verdict, String> {
    let reaching = tests.iter().filter(|test| test.reaches.contains(&id));
    caught(suites, reaching, mutant, ("MMSCALE_MUTANT", &id.to_string()))
}

/// What becomes of a mutant that is built alone.
fn built(scratch: &Scratch<'_>, tests: &[Test], mutant: &Mutant) -> Result<Verdict, String> {
    scratch.only(Some(mutant))?;
    let rest: Vec<&str> = PACKAGES.into_iter().filter(|of| *of != mutant.krate()).collect();
    let mut verdict = Verdict::Unreached;
    for packages in [&[mutant.krate()][..], &rest] {
        let Ok(suites) = scratch.build(packages) else { return Ok(Verdict::Unbuildable) };
        verdict = caught(&suites, tests.iter(), mutant, ("MMSCALE_MUTANT", ""))?;
        if verdict.is_settled() {
            break;
        }
    }
    Ok(verdict)
}

/// Runs tests until one fails.
fn caught<'a>(
    suites: &[Suite],
    tests: impl Iterator<Item = &'a Test>,
    mutant: &Mutant,
    variable: (&str, &str),
) -> Result<Verdict, String> {
    let suite_of = |test: &Test| suites.iter().find(|suite| suite.name == test.suite);
    let mut tests: Vec<(&Suite, &Test)> =
        tests.filter_map(|test| Some((suite_of(test)?, test))).collect();
    tests::sort(&mut tests, mutant);
    let mut verdict = Verdict::Unreached;
    for (suite, test) in tests {
        let by = || format!("{} `{}`", test.suite, test.name);
        verdict = match test.run(suite, variable)? {
            End::Passed => Verdict::Missed,
            End::Failed => return Ok(Verdict::Caught(by())),
            End::Hung => return Ok(Verdict::Timeout(by())),
        };
    }
    Ok(verdict)
}
