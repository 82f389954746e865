//! A script as a program in C, which a mail can carry: the same system calls in the same order.
//!
//! ```text
//! syntax tree --lower--> tree of C --sizes--> .. --emit--> functions --program--> repro.c
//! ```
//!
//! | module | content |
//! |---|---|
//! | `tree` | statements without programs, variables, parts of memory |
//! | `lower`, `lower_expr`, `lower_call` | from the syntax tree to it |
//! | `sizes`, `homes` | how memory knows its size, and where variables are declared |
//! | `emit`, `expr`, `call`, `task` | statements, values, calls and tasks in C |
//! | `layout` | on which CPUs tasks are that a script does not place |
//! | `helpers`, `main_part`, `program` | the functions around tasks, and the whole |
//! | `text`, `names`, `symbols` | lines of 80 columns; names that C allows; operators, numbers |
//! | `turns` | the program whose tasks take turns |
//! | `near`, `readme` | benchmarks that do nearly the same; the files next to the program |
//!
//! A program has what a run on the live kernel has: placement, the common start, the loops that end
//! with the run. It differs in three things: its random numbers are others, checks compare a page
//! with a number of its process and not with a word of its own, and a part of memory that is not
//! within it is not found.

mod call;
mod emit;
mod expr;
mod helpers;
mod homes;
mod layout;
mod lower;
mod lower_call;
mod lower_expr;
mod main_part;
mod names;
mod near;
mod program;
mod readme;
mod sizes;
mod symbols;
mod task;
mod text;
mod tree;
mod turns;

use crate::{Script, ScriptError};
use layout::Layout;

/// A program that is wanted.
#[derive(Clone, Debug)]
pub struct ProgramSpec<'a> {
    /// The name of the script or study.
    pub name: &'a str,
    /// The values of the parameters, in bytes, ns, or without a unit.
    pub params: &'a [i64],
    /// The command that writes the program.
    pub written_by: &'a str,
    /// The commands that simulate the same.
    pub simulated_by: &'a [String],
    /// Parts of the workload that the program does not have.
    pub remarks: &'a [String],
}

/// The files of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reproduction {
    /// `repro.c`.
    pub program: String,
    /// `Makefile`.
    pub makefile: &'static str,
    /// `README`.
    pub readme: String,
}

impl Script {
    /// Writes the script as a program in C. Fails at a statement that has no form there.
    pub fn reproduce(&self, how: &ProgramSpec<'_>) -> Result<Reproduction, ScriptError> {
        let layout = Layout::of(|cpus| self.needs(how.params, cpus));
        let file = format!("{}{}", self.name, crate::SUFFIX);
        let groups = self.memory_groups(how.params, 1);
        if let (true, [first, ..]) =
            (groups.iter().any(|of| of.count > 0), &self.tree.memory_groups[..])
        {
            let what = "a program in C has no memory groups: give this a number of 0, or start \
                        it in a memory group";
            return Err(ScriptError::new(&file, &self.text, first.name.at, what.to_owned()));
        }
        let program = program::program(&self.tree, &self.text, layout, how);
        let program =
            program.map_err(|why| ScriptError::new(&file, &self.text, why.at, why.what))?;
        let summary = self.tree.summary.as_ref().map(|summary| summary.text.as_str());
        let threads = program.contains("pthread_create");
        let readme = readme::readme(how, summary, threads);
        Ok(Reproduction { program, makefile: readme::MAKEFILE, readme })
    }
    /// Writes the script as a program in C whose tasks take turns, for an emulator that records
    /// their rounds. `rounds` of each task count. Fails as [`Script::reproduce`] does, and if no
    /// task has a loop.
    pub fn in_turns(
        &self,
        how: &ProgramSpec<'_>,
        rounds: Option<u64>,
    ) -> Result<String, ScriptError> {
        let program = self.reproduce(how)?.program;
        turns::with_turns(&program, rounds).ok_or_else(|| {
            let file = format!("{}{}", self.name, crate::SUFFIX);
            let what = "no task has a `loop` outside of other statements, so there are no rounds";
            ScriptError::new(&file, &self.text, 0, what.to_owned())
        })
    }
}
