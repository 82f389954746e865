//! Workload scripts: the programs of a workload in a small language like C, over the calls of
//! [`System`].
//!
//! ```text
//! text --parse--> syntax tree --compile--> operations --run--> calls of a System
//! ```
//!
//! | module | content |
//! |---|---|
//! | `script.pest` | the grammar |
//! | `ast`, `parse` | the syntax tree; from text to it |
//! | `items` | what the top of a script declares: machine, window, parameters, arms |
//! | `compile` | names and types are checked, and become numbered slots and operations |
//! | `op` | the operations |
//! | `c` | the same as a program in C |
//! | `run` | the interpreter, and what programs report |
//! | `estimate` | how many processes and pages a run needs at most |
//!
//! A script needs no time of a simulated machine by itself: only its calls do. Loops end: `loop`
//! with the run, others some time after it, and a loop in which no time passes is an error.

mod ast;
mod c;
mod compile;
mod error;
mod estimate;
mod items;
mod op;
mod parse;
mod run;

pub use ast::{SwapDevice, Unit};
pub use c::{ProgramSpec, Reproduction};
pub use compile::call_names;
pub use error::ScriptError;
pub use estimate::{MemoryGroups, ScriptNeeds};
pub use items::{ScriptArm, ScriptParam, ScriptWindow};
pub use parse::MAX_BYTES;
pub use run::{Fault, Receive, Report, Rounds, Sink, Times};

use mmscale_system::System;
use op::Program;
use std::sync::Arc;

/// The end of the names of files with scripts.
pub const SUFFIX: &str = ".mms";

/// A script that was parsed, checked and compiled.
#[derive(Debug)]
pub struct Script {
    name: String,
    text: String,
    tree: ast::Tree,
    program: Arc<Program>,
    params: Vec<ScriptParam>,
    arms: Vec<ScriptArm>,
}

/// Scripts are equal if they have the same name and text.
impl PartialEq for Script {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.text) == (&other.name, &other.text)
    }
}

impl Script {
    /// Reads the script of a file with this name, whose last part without its end is the name of
    /// the script.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScriptError> {
        let read = || {
            let tree = parse::parse(text)?;
            let program = Arc::new(compile::compile(&tree, text)?);
            let (params, arms) = (items::params(&tree)?, items::arms(&tree)?);
            items::check(&tree)?;
            Ok((tree, program, params, arms))
        };
        let (tree, program, params, arms) =
            read().map_err(|why: error::Wrong| ScriptError::new(file, text, why.at, why.what))?;
        let last = file.rsplit(['/', '\\']).next().unwrap_or(file);
        let name = last.strip_suffix(SUFFIX).unwrap_or(last).to_owned();
        Ok(Self { name, text: text.to_owned(), tree, program, params, arms })
    }
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Returns the text.
    pub fn text(&self) -> &str {
        &self.text
    }
    /// Returns the text without comments, with one space between words: what the script means.
    pub fn content(&self) -> String {
        items::content(&self.text)
    }
    /// Returns the question that the script answers, in one line.
    pub fn summary(&self) -> String {
        let given = self.tree.summary.as_ref().map(|summary| summary.text.clone());
        given.unwrap_or_else(|| format!("the script {}", self.name))
    }
    /// Returns the name of the machine profile, if the script chooses one.
    pub fn profile(&self) -> Option<&str> {
        self.tree.profile.as_ref().map(|profile| profile.text.as_str())
    }
    /// Returns the number of CPUs, if the script chooses it.
    pub fn cpus(&self) -> Option<usize> {
        self.tree.cpus.as_ref().and_then(|cpus| usize::try_from(cpus.value).ok())
    }
    /// Returns the lengths of the window that the script chooses.
    pub fn window(&self) -> ScriptWindow {
        items::window(&self.tree)
    }
    /// Returns where pages in swap are; `None` if the script has no swap area.
    pub fn swap_device(&self) -> Option<SwapDevice> {
        self.tree.swap.as_ref().map(|swap| swap.device)
    }
    /// Returns the line of the first call that asks for huge pages, without `try`.
    pub fn huge_page_line(&self) -> Option<u32> {
        use mmscale_system::Advice::{Collapse, HugePage};
        let asks = |op: &&op::Op| {
            let op::Code::Call { verb, .. } = op.code else { return false };
            !op.attempt && matches!(verb, op::Verb::Madvise(HugePage | Collapse))
        };
        self.program.ops.iter().find(asks).map(|op| op.line)
    }
    /// Returns the size of compressed pages in percent of a page; `None`: sizes differ. `params`
    /// are the values of the parameters. A value above 100 is not possible.
    pub fn compressed_percent(&self, params: &[i64], cpus: usize) -> Option<u64> {
        estimate::compressed_percent(&self.tree, params, cpus)
    }
    /// Returns the parameters.
    pub fn params(&self) -> &[ScriptParam] {
        &self.params
    }
    /// Returns the arms in addition to Linux.
    pub fn arms(&self) -> &[ScriptArm] {
        &self.arms
    }
    /// Whether the number of processes and threads is proportional to that of CPUs, so that a run
    /// on one CPU can be compared with. `params` are the values of the parameters.
    pub fn is_per_cpu(&self, params: &[i64]) -> bool {
        estimate::is_per_cpu(&self.tree, params)
    }
    /// Returns the most processes and pages that a run needs at the same time, as far as the script
    /// tells. `params` are the values of the parameters.
    pub fn needs(&self, params: &[i64], cpus: usize) -> ScriptNeeds {
        estimate::needs(&self.tree, params, cpus)
    }
    /// Returns the memory groups, those of each `group` together, in the order of their numbers:
    /// the first is number 1, as the root is 0. `params` are the values of the parameters.
    pub fn memory_groups(&self, params: &[i64], cpus: usize) -> Vec<MemoryGroups> {
        estimate::memory_groups(&self.tree, params, cpus)
    }
    /// Whether memory groups are created or removed during the run.
    pub fn changes_memory_groups(&self) -> bool {
        self.program.changes_groups()
    }
    /// Whether the script has memory groups, even if their number may be 0.
    pub fn has_memory_groups(&self) -> bool {
        !self.tree.memory_groups.is_empty()
    }
    /// Whether a process replaces its memory by an empty one.
    pub fn has_exec(&self) -> bool {
        let is_exec = |op: &op::Op| matches!(op.code, op::Code::Call { verb: op::Verb::Exec, .. });
        self.program.ops.iter().any(is_exec)
    }
    /// Runs the script as the first program of a system. `params` are the values of the parameters,
    /// in bytes, ns, or without a unit.
    pub fn run<S: System>(&self, params: &[i64], seed: u64, times: Times, sink: Sink, system: &S) {
        self.run_with(params, seed, times, run::Hooks { sink, rounds: None }, system);
    }
    /// Runs the script like [`Self::run`], and calls `rounds` at the start of each round of an
    /// outermost `loop`.
    pub fn run_rounds<S: System>(
        &self,
        params: &[i64],
        seed: u64,
        times: Times,
        sink: Sink,
        rounds: Rounds,
        system: &S,
    ) {
        self.run_with(params, seed, times, run::Hooks { sink, rounds: Some(rounds) }, system);
    }
    fn run_with<S: System>(
        &self,
        params: &[i64],
        seed: u64,
        times: Times,
        hooks: run::Hooks,
        system: &S,
    ) {
        let cpus = system.cpus();
        let needs = self.needs(params, cpus);
        let crowd = run::Crowd::new(needs.groups, needs.standing, cpus);
        run::run(&self.program, params, seed, times, hooks, crowd, system);
    }
    /// Whether a program of the script has a `loop`.
    pub fn loops(&self) -> bool {
        let is_loop = |op: &op::Op| matches!(op.code, op::Code::Ends { outermost: true, .. });
        self.program.ops.iter().any(is_loop)
    }
}
