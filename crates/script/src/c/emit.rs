//! Statements in C.

use super::helpers::Helper;
use super::homes;
use super::layout::Layout;
use super::lower::{Done, Lowered};
use super::text::Lines;
use super::tree::{Block, Expr, Kind, Node, VarId, What, walk};
use crate::ast::Change;
use crate::compile::Type;
use std::collections::{BTreeMap, BTreeSet};

/// How a task ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// The function of a process at the top of the script returns.
    Group,
    /// A fork exits.
    Fork,
    /// The function of a thread returns.
    Thread,
}

/// Writes the functions of tasks.
pub(super) struct Emitter<'a> {
    pub(super) script: &'a Lowered,
    /// The names of the parameters in C, and their values.
    pub(super) params: Vec<String>,
    pub(super) values: &'a [i64],
    pub(super) layout: Layout,
    /// Parameters that are used.
    pub(super) used: BTreeSet<usize>,
    pub(super) needs: BTreeSet<Helper>,
    /// Variables that any statement reads, and those whose size one reads.
    read: BTreeSet<VarId>,
    sized: BTreeSet<VarId>,
    /// Whether a statement asks whether a call succeeded.
    pub(super) asks: bool,
    /// Variables of the function that are not declared yet.
    pub(super) undeclared: BTreeSet<VarId>,
    /// Arrays for the threads of teams that are declared, by the number of a thread in its team.
    pub(super) teams: BTreeMap<VarId, String>,
    /// Functions of threads, each with its arguments.
    pub(super) threads: Vec<String>,
    /// Names of functions.
    pub(super) names: BTreeSet<String>,
    /// The name of the function that is written.
    pub(super) function: String,
    pub(super) ending: Ending,
    /// The place of the statement that is written.
    pub(super) at: usize,
    /// Whether a comment of the function says that a call may fail.
    pub(super) told: bool,
    /// Whether it waits for its children at its end, and whether threads go on then.
    pub(super) leaves: (bool, bool),
    /// Declarations that the next block begins with.
    pub(super) opening: String,
    /// Lines that the next block has between its declarations and its statements.
    pub(super) prelude: String,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(
        script: &'a Lowered,
        params: Vec<String>,
        values: &'a [i64],
        layout: Layout,
    ) -> Self {
        let (mut read, mut sized, mut asks) = (BTreeSet::new(), BTreeSet::new(), false);
        let mut needs = BTreeSet::new();
        let mut see = |what: &What| {
            read.extend(what.reads());
            for expr in what.exprs() {
                expr.any(&mut |part| {
                    match part {
                        Expr::SizeOf(var) => _ = sized.insert(*var),
                        Expr::Ok => asks = true,
                        Expr::Random(_) => _ = needs.insert(Helper::Random),
                        _ => {}
                    }
                    false
                });
            }
        };
        for group in &script.groups {
            walk(&group.body, &mut see);
        }
        Self {
            script,
            params,
            values,
            layout,
            used: BTreeSet::new(),
            needs,
            read,
            sized,
            asks,
            undeclared: BTreeSet::new(),
            teams: BTreeMap::new(),
            threads: Vec::new(),
            names: BTreeSet::new(),
            function: String::new(),
            ending: Ending::Group,
            at: 0,
            told: false,
            leaves: (false, false),
            opening: String::new(),
            prelude: String::new(),
        }
    }

    pub(super) fn need(&mut self, helper: Helper) {
        self.needs.insert(helper);
    }
    pub(super) fn is_read(&self, var: VarId) -> bool {
        self.read.contains(&var)
    }
    /// Whether memory has a variable with its size.
    pub(super) fn has_size(&self, var: VarId) -> bool {
        self.sized.contains(&var)
    }
    pub(super) fn of(&self, var: VarId) -> Type {
        self.script.vars[var.0].of
    }
    /// Returns the declaration of a variable, with a blank or a star before its name.
    pub(super) fn declaration(&self, var: VarId) -> String {
        let of = match self.of(var) {
            Type::Number | Type::Size | Type::Time => "long ",
            Type::Memory => "char *",
            Type::File | Type::Pidfd => "int ",
            Type::Process => "pid_t ",
            Type::Thread => "pthread_t ",
        };
        format!("{of}{}", self.name(var))
    }

    /// Writes a block, with the declarations of its variables.
    pub(super) fn block(&mut self, block: &Block, out: &mut Lines) -> Done<()> {
        let here = self.undeclared.iter().copied().filter(|var| {
            let has = block.iter().any(|node| super::sizes::mentions(&node.what, *var));
            has && homes::is_here(block, *var)
        });
        let here: Vec<VarId> = here.collect();
        here.iter().for_each(|var| _ = self.undeclared.remove(var));
        let mut here: Vec<VarId> = here
            .into_iter()
            .filter(|var| self.is_read(*var) && !homes::is_counter(block, *var))
            .collect();
        let (opening, prelude) =
            (std::mem::take(&mut self.opening), std::mem::take(&mut self.prelude));
        let mut merged = 0;
        let mut firsts = Lines::at(out.indent);
        while let Some(node) = block.get(merged).filter(|_| prelude.is_empty()) {
            let known = node.what.sets().filter(|var| here.contains(var));
            let Some(var) = known.filter(|var| homes::is_set_first(block, *var)) else { break };
            here.retain(|other| *other != var);
            merged += 1;
            if self.first(node, var, &mut firsts)? == Goes::Alone {
                break;
            }
        }
        out.raw(&opening);
        self.declare(block, &here, out);
        let teams = self.declare_teams(block, out);
        let check = block[..merged].last().map(|node| &node.what);
        if !opening.is_empty() || !here.is_empty() || merged > 0 || teams {
            out.raw(&firsts.into_text());
            out.blank();
        }
        out.raw(&prelude);
        // The check of the last declaration comes after it.
        if let Some(what) = check {
            self.after(what, out)?;
        }
        block[merged..].iter().try_for_each(|node| self.node(node, out))
    }

    /// Writes a statement that is the declaration of its variable, too.
    fn first(&mut self, node: &Node, var: VarId, out: &mut Lines) -> Done<Goes> {
        node.comment.iter().for_each(|comment| out.comment(comment));
        self.at = node.at;
        let name = self.declaration(var);
        match &node.what {
            What::Set(_, value) => {
                if self.has_size(var)
                    && let Expr::Address(range) = value
                {
                    let size = self.expr(&range.size);
                    out.line(&format!("long {} = {size};", self.size_name(var)));
                }
                let value = self.expr(value);
                out.line(&format!("{name} = {value};"));
                Ok(Goes::On)
            }
            What::Call(call) => {
                let made = self.made(&call.what, Some(var));
                made.sizes.iter().for_each(|size| out.line(&format!("long {size};")));
                out.line(&format!("{name} = {};", made.call));
                Ok(Goes::Alone)
            }
            What::Task(task) => {
                let call = self.started(task, out)?;
                out.line(&format!("{name} = {call};"));
                Ok(Goes::Alone)
            }
            _ => Ok(Goes::On),
        }
    }

    /// Writes what follows the call of a declaration.
    fn after(&mut self, what: &What, out: &mut Lines) -> Done<()> {
        match what {
            What::Call(call) => {
                self.checked(&call.what, out);
                Ok(())
            }
            What::Task(task) => self.child(task, out),
            _ => Ok(()),
        }
    }

    fn declare(&self, block: &Block, here: &[VarId], out: &mut Lines) {
        let mut longs: Vec<String> = Vec::new();
        for var in here {
            let zero = match self.of(*var) {
                _ if homes::is_set_first(block, *var) => "",
                Type::Memory => " = NULL",
                _ => " = 0",
            };
            let declaration = format!("{}{zero}", self.declaration(*var));
            match declaration.strip_prefix("long ") {
                Some(long) => longs.push(long.to_owned()),
                None => out.line(&format!("{declaration};")),
            }
            if self.has_size(*var) {
                longs.push(format!("{}{}", self.size_name(*var), zero.replace("NULL", "0")));
            }
        }
        if !longs.is_empty() {
            out.line(&format!("long {};", longs.join(", ")));
        }
    }

    /// Declares an array for each team of threads whose number is known.
    fn declare_teams(&mut self, block: &Block, out: &mut Lines) -> bool {
        let before = self.teams.len();
        for node in block {
            let What::Task(task) = &node.what else { continue };
            let (Kind::Team, Some((amount, id))) = (task.kind, &task.amount) else { continue };
            if amount.is_constant() {
                let nth = self.teams.len() - before + 1;
                let name = if nth == 1 { "team".to_owned() } else { format!("team{nth}") };
                let amount = self.expr(amount);
                out.line(&format!("pthread_t {name}[{amount}];"));
                self.teams.insert(*id, name);
            }
        }
        self.teams.len() > before
    }

    pub(super) fn node(&mut self, node: &Node, out: &mut Lines) -> Done<()> {
        let mut lines = Lines::at(out.indent);
        self.at = node.at;
        self.what(&node.what, &mut lines)?;
        if !lines.is_empty() {
            node.comment.iter().for_each(|comment| out.comment(comment));
            out.raw(&lines.into_text());
        }
        Ok(())
    }

    fn what(&mut self, what: &What, out: &mut Lines) -> Done<()> {
        match what {
            What::Loop(body) => self.headed("while (!shared->stop)", body, out)?,
            What::Until(end, body) => {
                self.need(Helper::SinceStart);
                let head = format!("while (!shared->stop && since_start() < {})", self.name(*end));
                self.headed(&head, body, out)?;
            }
            What::For(counter, [from, to], body) => {
                let declared = !homes_outside(self, *counter);
                let (name, from) = (self.name(*counter), self.expr(from));
                let to = self.bound(to, 8);
                let long = if declared { "long " } else { "" };
                let head = format!("for ({long}{name} = {from}; {name} < {to}; {name}++)");
                self.headed(&head, body, out)?;
            }
            What::While(value, body) => {
                let head = format!("while ({})", self.expr(value));
                self.headed(&head, body, out)?;
            }
            What::If(branches, last) => self.branches(branches, last.as_ref(), out)?,
            What::Switch(value, options) => {
                out.line(&format!("switch ({}) {{", self.expr(value)));
                for (nth, body) in options.iter().enumerate() {
                    let last = nth + 1 == options.len();
                    out.line(&if last { "default:".to_owned() } else { format!("case {nth}:") });
                    out.indent += 1;
                    self.block(body, out)?;
                    out.line("break;");
                    out.indent -= 1;
                }
                out.line("}");
            }
            What::Start => out.line("start();"),
            What::Count(number) => {
                let line = format!("count({});", self.expr(number));
                out.line(&line);
            }
            What::Break => out.line("break;"),
            What::Continue => out.line("continue;"),
            What::Return => self.end(out),
            What::Set(var, value) => self.set(*var, value, out),
            What::Change(var, change, value) => {
                let sign = if *change == Change::Add { '+' } else { '-' };
                let (name, value) = (self.name(*var), self.expr(value));
                match value.as_str() {
                    _ if !self.is_read(*var) => {}
                    "1" => out.line(&format!("{name}{sign}{sign};")),
                    value => out.line(&format!("{name} {sign}= {value};")),
                }
            }
            What::Call(call) => self.call(call, out),
            What::Task(task) => self.task(task, out)?,
        }
        Ok(())
    }

    fn set(&mut self, var: VarId, value: &Expr, out: &mut Lines) {
        if !self.is_read(var) {
            return;
        }
        let name = self.name(var);
        if let Expr::Binary(binary, sides) = value
            && sides[0] == Expr::Var(var)
            && let Some(sign) = super::symbols::assigning(*binary)
        {
            let by = self.expr(&sides[1]);
            return out.line(&format!("{name} {sign}= {by};"));
        }
        let text = self.expr(value);
        out.line(&format!("{name} = {text};"));
        if self.has_size(var)
            && let Expr::Address(range) = value
        {
            let size = self.expr(&range.size);
            out.line(&format!("{} = {size};", self.size_name(var)));
        }
    }

    /// Writes a loop.
    fn headed(&mut self, head: &str, body: &Block, out: &mut Lines) -> Done<()> {
        let mut lines = Lines::at(out.indent + 1);
        self.block(body, &mut lines)?;
        braced(head, &lines.into_text(), out);
        Ok(())
    }

    fn branches(
        &mut self,
        branches: &[(Expr, Block)],
        last: Option<&Block>,
        out: &mut Lines,
    ) -> Done<()> {
        let mut written = Vec::new();
        for (nth, (value, body)) in branches.iter().enumerate() {
            let value = self.expr(value);
            let mut lines = Lines::at(out.indent + 1);
            self.block(body, &mut lines)?;
            let word = if nth == 0 { "if" } else { "else if" };
            written.push((format!("{word} ({value})"), lines.into_text()));
        }
        if let Some(body) = last.filter(|body| !body.is_empty()) {
            let mut lines = Lines::at(out.indent + 1);
            self.block(body, &mut lines)?;
            written.push(("else".to_owned(), lines.into_text()));
        }
        if written.iter().all(|(_, body)| body.lines().count() == 1) {
            written.iter().for_each(|(head, body)| braced(head, body, out));
            return Ok(());
        }
        for (nth, (head, body)) in written.iter().enumerate() {
            let before = if nth == 0 { "" } else { "} " };
            out.line(&format!("{before}{head} {{"));
            out.raw(body);
        }
        out.line("}");
        Ok(())
    }

    /// Writes the end of a task.
    pub(super) fn end(&mut self, out: &mut Lines) {
        let (waits, threads) = self.leaves;
        if waits {
            self.need(Helper::WaitForAll);
            out.line("wait_for_all();");
        }
        match self.ending {
            Ending::Thread => out.line("return NULL;"),
            // The process ends with its last thread.
            _ if threads => out.line("pthread_exit(NULL);"),
            Ending::Fork => out.line("_exit(0);"),
            Ending::Group => out.line("return;"),
        }
    }
}

/// Whether a declaration may be followed by others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Goes {
    On,
    /// The check of its result follows.
    Alone,
}

/// Whether the counter of a loop is declared outside of it.
fn homes_outside(emitter: &Emitter<'_>, counter: VarId) -> bool {
    let of = |group: &super::tree::Group| {
        bodies(&group.body, emitter.script.vars[counter.0].owner, group.owner)
            .into_iter()
            .any(|body| !homes::is_counter(body, counter))
    };
    emitter.script.groups.iter().any(of)
}

/// Returns the body of the function with this owner, of those in a block.
fn bodies(body: &Block, wanted: super::tree::Owner, own: super::tree::Owner) -> Vec<&Block> {
    if own == wanted {
        return vec![body];
    }
    let mut found = Vec::new();
    walk(body, &mut |what| {
        if let What::Task(task) = what
            && task.owner == wanted
            && matches!(task.kind, super::tree::Kind::Thread | super::tree::Kind::Team)
        {
            found.push(&task.body);
        }
    });
    found
}

/// Writes a body below a head, in brackets unless it is one line.
pub(super) fn braced(head: &str, body: &str, out: &mut Lines) {
    match body.lines().count() {
        0 => {
            out.line(head);
            out.indent += 1;
            out.line(";");
            out.indent -= 1;
        }
        1 => {
            out.line(head);
            out.raw(body);
        }
        _ => {
            out.line(&format!("{head} {{"));
            out.raw(body);
            out.line("}");
        }
    }
}
