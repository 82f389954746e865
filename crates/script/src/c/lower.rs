//! From the syntax tree to that of a program in C.

use super::names;
use super::tree::{
    Block, Calls, Expr, GLOBAL, Group, Kind, Node, ONE, Owner, Range, Task, Var, VarId, What, ZERO,
    has, walk,
};
use crate::ast::{self, At, Binary, Change, ExprKind, Given, On, Statement, TaskKind, Tree, Unit};
use crate::compile::Type;
use crate::error::{Wrong, wrong};
use mmscale_system::Backing;
use std::collections::BTreeSet;

pub(super) type Done<T> = Result<T, Wrong>;

/// A script in the form of a program in C.
#[derive(Debug)]
pub(super) struct Lowered {
    pub(super) vars: Vec<Var>,
    /// Files of the script, with their sizes.
    pub(super) files: Vec<(VarId, Expr, Backing)>,
    pub(super) groups: Vec<Group>,
}

/// The state while a script is read. Names and types were checked when it was compiled.
pub(super) struct Lowering<'a> {
    pub(super) tree: &'a Tree,
    text: &'a str,
    pub(super) vars: Vec<Var>,
    scope: Vec<(String, VarId)>,
    owner: Owner,
    owners: usize,
    /// Whether the task has passed its `start`.
    started: bool,
    /// Whether statements are in a `try`.
    pub(super) attempt: bool,
}

/// Reads a script.
pub(super) fn lower(tree: &Tree, text: &str) -> Done<Lowered> {
    let mut lowering = Lowering {
        tree,
        text,
        vars: Vec::new(),
        scope: Vec::new(),
        owner: GLOBAL,
        owners: 0,
        started: false,
        attempt: false,
    };
    let mut files = Vec::new();
    for ast::FileItem { name, size, backing } in &tree.files {
        let mut before = Block::new();
        let (size, _) = lowering.expr(size, &mut before)?;
        let var = lowering.declare(&name.text, Type::File);
        lowering.vars[var.0].sizes.push(size.clone());
        files.push((var, size, *backing));
    }
    let groups = tree.groups.iter().map(|group| lowering.group(group));
    let mut groups = groups.collect::<Done<Vec<Group>>>()?;
    keep_mapped(&mut groups);
    Ok(Lowered { vars: lowering.vars, files, groups })
}

impl<'a> Lowering<'a> {
    fn group(&mut self, group: &'a ast::GroupItem) -> Done<Group> {
        let kept = self.scope.len();
        self.owners += 1;
        (self.owner, self.started) = (Owner(self.owners), false);
        let id = self.declare("id", Type::Number);
        let mut before = Block::new();
        let (number, per_cpu) = match &group.amount {
            None => (ONE, false),
            Some(amount) => {
                let number = amount.number.as_ref();
                let number = number.map(|number| self.expr(number, &mut before)).transpose()?;
                (number.map_or(ONE, |(number, _)| number), amount.per_cpu)
            }
        };
        if !before.is_empty() || !number.is_constant() {
            return wrong(group.name.at, "the number of these processes is not known before a run");
        }
        let on = self.on(group.place.on.as_ref(), &mut before)?;
        let priority = self.placed(group.place.priority.as_ref(), &mut before)?;
        let own_cpu = per_cpu && on.is_none();
        let amount =
            if per_cpu { Expr::binary(Binary::Multiply, number, Expr::Cpus) } else { number };
        let mut body = Block::new();
        self.block_into(&group.body, &mut body)?;
        if !has(&body, |what| matches!(what, What::Start)) {
            body.insert(0, Node { comment: None, at: group.name.at, what: What::Start });
        }
        self.scope.truncate(kept);
        let (name, owner) = (group.name.text.clone(), self.owner);
        Ok(Group { name, amount, per_cpu: own_cpu, on, priority, id, body, owner })
    }

    /// Returns the name of the program that is the whole of a body.
    fn program_of(&self, body: &ast::Block) -> Option<String> {
        match &body[..] {
            [Statement { what: ast::What::Act(call), .. }] => {
                self.tree.program(call).map(|_| call.name.text.clone())
            }
            _ => None,
        }
    }

    fn on(&mut self, on: Option<&'a On>, out: &mut Block) -> Done<Option<On<Expr>>> {
        on.map(|on| match on {
            On::Cpu(cpu) => self.expr(cpu, out).map(|(cpu, _)| On::Cpu(cpu)),
            On::Order(order) => Ok(On::Order(*order)),
        })
        .transpose()
    }

    fn placed(&mut self, expr: Option<&'a ast::Expr>, out: &mut Block) -> Done<Option<Expr>> {
        expr.map(|expr| self.expr(expr, out).map(|(expr, _)| expr)).transpose()
    }

    /// Adds a variable, which may hide another one.
    pub(super) fn declare(&mut self, name: &str, of: Type) -> VarId {
        let id = VarId(self.vars.len());
        let own = Var { name: names::of_variable(name), of, owner: self.owner, sizes: Vec::new() };
        self.vars.push(own);
        self.scope.push((name.to_owned(), id));
        id
    }
    /// Adds a variable that the script does not have.
    pub(super) fn fresh(&mut self, names: &[&str], of: Type) -> VarId {
        let is_free = |name: &str| {
            self.scope.iter().all(|(other, _)| other != name)
                && !self.text.contains(&format!("{name} ="))
        };
        let free = names.iter().find(|name| is_free(name)).map(|name| (*name).to_owned());
        let name = free.unwrap_or_else(|| format!("{}{}", names[0], self.vars.len()));
        self.declare(&name, of)
    }
    pub(super) fn find(&self, name: &str) -> Option<VarId> {
        self.scope.iter().rev().find(|(other, _)| other == name).map(|(_, id)| *id)
    }
    /// Returns the variable that is set, and adds it if it is new.
    pub(super) fn target(&mut self, name: &str, of: Type) -> VarId {
        self.find(name).unwrap_or_else(|| self.declare(name, of))
    }

    pub(super) fn block(&mut self, block: &'a ast::Block) -> Done<Block> {
        let mut out = Block::new();
        self.block_into(block, &mut out)?;
        Ok(out)
    }
    fn block_into(&mut self, block: &'a ast::Block, out: &mut Block) -> Done<()> {
        block.iter().try_for_each(|statement| {
            let begin = out.len();
            self.statement(statement, out)?;
            if let Some(first) = out.get_mut(begin) {
                let own = comment(self.text, statement.at);
                first.comment = own.or_else(|| first.comment.take());
            }
            Ok(())
        })
    }

    fn statement(&mut self, statement: &'a Statement, out: &mut Block) -> Done<()> {
        use ast::What as Ast;
        let at = statement.at;
        let what = match &statement.what {
            Ast::Loop(None, body) => What::Loop(self.block(body)?),
            Ast::Loop(Some(limit), body) => return self.limited(limit, body, at, out),
            Ast::For(name, [from, to], body) => {
                let (from, _) = self.expr(from, out)?;
                let (to, _) = self.expr(to, out)?;
                let counter = self.target(&name.text, Type::Number);
                return self.counted(counter, [from, to], body, at, out);
            }
            Ast::While(condition, body) => {
                let mut before = Block::new();
                let (value, _) = self.expr(condition, &mut before)?;
                if !before.is_empty() {
                    return wrong(at, "a call in the condition of `while` is not written in C");
                }
                What::While(value, self.block(body)?)
            }
            Ast::If(branches, last) => self.branches(branches, last.as_ref(), out)?,
            Ast::Choose(options) => self.choose(options, at, out)?,
            Ast::Threads(amount, place, body) => return self.team(amount, place, body, at, out),
            Ast::Time(body) => return self.block_into(body, out),
            Ast::Start if self.started => return Ok(()),
            Ast::Start => {
                self.started = true;
                What::Start
            }
            Ast::Count(number) => {
                let number = number.as_ref().map(|number| self.expr(number, out)).transpose()?;
                What::Count(number.map_or(ONE, |(number, _)| number))
            }
            Ast::Break => What::Break,
            Ast::Continue => What::Continue,
            Ast::Return => What::Return,
            Ast::Try(inner) => {
                let around = std::mem::replace(&mut self.attempt, true);
                let done = self.statement(inner, out);
                self.attempt = around;
                return done;
            }
            Ast::Task(task) => return self.task(task, None, at, out),
            Ast::Assign(name, Change::Set, Given::Task(task)) => {
                return self.task(task, Some(&name.text), at, out);
            }
            Ast::Assign(name, change, given) => return self.assign(name, *change, given, out),
            Ast::Act(call) => match self.tree.program(call) {
                Some(body) => return self.block_into(body, out),
                None => return self.act(call, at, out),
            },
        };
        out.push(Node { comment: None, at, what });
        Ok(())
    }

    /// Reads `loop NUMBER` and `loop TIME`.
    fn limited(
        &mut self,
        limit: &'a ast::Expr,
        body: &'a ast::Block,
        at: At,
        out: &mut Block,
    ) -> Done<()> {
        let (limit, of) = self.expr(limit, out)?;
        if of == Type::Number {
            let counter = self.fresh(&["i", "j", "k"], Type::Number);
            return self.counted(counter, [ZERO, limit], body, at, out);
        }
        let end = self.fresh(&["end", "end2"], Type::Time);
        let until = Expr::binary(Binary::Add, Expr::Now, limit);
        out.push(Node { comment: None, at, what: What::Set(end, until) });
        let what = What::Until(end, self.block(body)?);
        out.push(Node { comment: None, at, what });
        Ok(())
    }

    /// Reads the body of a loop over numbers. The end is evaluated once, before the loop.
    fn counted(
        &mut self,
        counter: VarId,
        [from, mut to]: [Expr; 2],
        body: &'a ast::Block,
        at: At,
        out: &mut Block,
    ) -> Done<()> {
        let body = self.block(body)?;
        let mut set = Vec::new();
        walk(&body, &mut |what| match what {
            What::Change(var, ..) => set.push(*var),
            what => set.extend(what.sets()),
        });
        let changes = |part: &Expr| match part {
            Expr::Var(var) | Expr::SizeOf(var) => set.contains(var) || *var == counter,
            Expr::Random(_) | Expr::Now | Expr::Present(_) => true,
            _ => false,
        };
        if to.any(&mut { changes }) {
            let end = self.fresh(&["end", "end2"], Type::Number);
            out.push(Node { comment: None, at, what: What::Set(end, to) });
            to = Expr::Var(end);
        }
        out.push(Node { comment: None, at, what: What::For(counter, [from, to], body) });
        Ok(())
    }

    fn branches(
        &mut self,
        branches: &'a [(ast::Expr, ast::Block)],
        last: Option<&'a ast::Block>,
        out: &mut Block,
    ) -> Done<What> {
        let mut lowered = Vec::new();
        for (nth, (condition, body)) in branches.iter().enumerate() {
            let before = out.len();
            let (value, _) = self.expr(condition, out)?;
            if nth > 0 && out.len() > before {
                return wrong(
                    condition.at,
                    "a call in the condition of `else if` is not written in C",
                );
            }
            lowered.push((value, self.block(body)?));
        }
        Ok(What::If(lowered, last.map(|last| self.block(last)).transpose()?))
    }

    /// Reads a choice: cases of equal weight, or one comparison for each option but the last.
    fn choose(
        &mut self,
        options: &'a [(ast::Expr, ast::Block)],
        at: At,
        out: &mut Block,
    ) -> Done<What> {
        let mut weighted = Vec::new();
        for (weight, body) in options {
            let (weight, _) = self.expr(weight, out)?;
            weighted.push((weight, self.block(body)?));
        }
        let add = |sum: &Expr, weight: &Expr| match (sum, weight) {
            (Expr::Literal(a, Unit::One), Expr::Literal(b, Unit::One)) => {
                Expr::Literal(a.saturating_add(*b), Unit::One)
            }
            _ => Expr::binary(Binary::Add, sum.clone(), weight.clone()),
        };
        let all = weighted.iter().fold(ZERO, |sum, (weight, _)| add(&sum, weight));
        let lot = Expr::Random(Box::new([ZERO, all]));
        let breaks = weighted.iter().any(|(_, body)| has(body, |what| matches!(what, What::Break)));
        if weighted.len() > 2 && !breaks && weighted.iter().all(|(weight, _)| *weight == ONE) {
            return Ok(What::Switch(lot, weighted.into_iter().map(|(_, body)| body).collect()));
        }
        let Some((_, last)) = weighted.pop() else { return Ok(What::If(vec![], None)) };
        let lot = if weighted.len() > 1 {
            let var = self.fresh(&["lot", "lot2"], Type::Number);
            out.push(Node { comment: None, at, what: What::Set(var, lot) });
            Expr::Var(var)
        } else {
            lot
        };
        let mut sum = ZERO;
        let below = |(weight, body): (Expr, Block)| {
            sum = add(&sum, &weight);
            (Expr::Binary(Binary::Less, Box::new([lot.clone(), sum.clone()])), body)
        };
        let branches: Vec<_> = weighted.into_iter().map(below).collect();
        if branches.is_empty() {
            return Ok(What::If(vec![(ONE, last)], None));
        }
        Ok(What::If(branches, Some(last)))
    }

    fn assign(
        &mut self,
        name: &'a ast::Name,
        change: Change,
        given: &'a Given,
        out: &mut Block,
    ) -> Done<()> {
        let Given::Expr(expr) = given else { return Ok(()) };
        if let (Change::Set, ExprKind::Call(call)) = (change, &expr.kind)
            && let Some(()) = self.call_into(call, &name.text, expr.at, out)?
        {
            return Ok(());
        }
        let (value, of) = self.expr(expr, out)?;
        let var = self.target(&name.text, of);
        if let Expr::Address(range) = &value {
            if of == Type::File && !range.from.is_zero() {
                let what = "a part of a file as a variable is not written in C; name it in mmap";
                return wrong(expr.at, what);
            }
            self.vars[var.0].sizes.push(range.size.clone());
        }
        let what = match change {
            Change::Set => What::Set(var, value),
            change => What::Change(var, change, value),
        };
        out.push(Node { comment: None, at: name.at, what });
        Ok(())
    }

    fn team(
        &mut self,
        amount: &'a ast::Amount,
        place: &'a ast::Placing,
        body: &'a ast::Block,
        at: At,
        out: &mut Block,
    ) -> Done<()> {
        let number = amount.number.as_ref().map(|number| self.expr(number, out)).transpose()?;
        let mut number = number.map_or(ONE, |(number, _)| number);
        if amount.per_cpu {
            number = Expr::binary(Binary::Multiply, number, Expr::Cpus);
        }
        let kept = self.scope.len();
        let id = self.declare("id", Type::Number);
        let on = self.on(place.on.as_ref(), out)?;
        let priority = self.placed(place.priority.as_ref(), out)?;
        let name = self.program_of(body);
        let (owner, body) = self.thread_body(body)?;
        self.scope.truncate(kept);
        let (amount, attempt) = (Some((number, id)), false);
        let what = Task {
            kind: Kind::Team,
            amount,
            on,
            priority,
            to: None,
            name,
            body,
            owner,
            attempt,
            dropped: vec![],
        };
        out.push(Node { comment: None, at, what: What::Task(what) });
        Ok(())
    }

    /// Reads the body of a thread, which is a function of its own.
    fn thread_body(&mut self, body: &'a ast::Block) -> Done<(Owner, Block)> {
        let (around, started, kept) = (self.owner, self.started, self.scope.len());
        self.owners += 1;
        self.owner = Owner(self.owners);
        let owner = self.owner;
        let body = self.task_body(body);
        (self.owner, self.started) = (around, started);
        self.scope.truncate(kept);
        Ok((owner, body?))
    }
    fn task_body(&mut self, body: &'a ast::Block) -> Done<Block> {
        let (attempt, started) = (std::mem::take(&mut self.attempt), self.started);
        let body = self.block(body);
        (self.attempt, self.started) = (attempt, started);
        body
    }

    fn task(
        &mut self,
        task: &'a ast::Task,
        name: Option<&str>,
        at: At,
        out: &mut Block,
    ) -> Done<()> {
        if self.attempt {
            return wrong(at, "`try` before the start of a task is not written in C");
        }
        let on = self.on(task.place.on.as_ref(), out)?;
        let priority = self.placed(task.place.priority.as_ref(), out)?;
        let (kind, of) = match task.kind {
            TaskKind::Fork => (Kind::Fork, Type::Process),
            TaskKind::Process => (Kind::Process, Type::Process),
            TaskKind::Thread => (Kind::Thread, Type::Thread),
        };
        let to = name.map(|name| self.target(name, of));
        let mut dropped = Vec::new();
        if kind == Kind::Process {
            let memory = self.scope.iter().map(|(_, var)| *var);
            let memory = memory.filter(|var| self.vars[var.0].of == Type::Memory);
            dropped.extend(memory.map(|var| Range { var, from: ZERO, size: Expr::SizeOf(var) }));
        }
        let (kept, name) = (self.scope.len(), self.program_of(&task.body));
        let (owner, body) = match kind {
            Kind::Thread | Kind::Team => self.thread_body(&task.body)?,
            Kind::Fork | Kind::Process => (self.owner, self.task_body(&task.body)?),
        };
        self.scope.truncate(kept);
        let attempt = self.attempt;
        let what =
            Task { kind, amount: None, on, priority, to, name, body, owner, attempt, dropped };
        out.push(Node { comment: None, at, what: What::Task(what) });
        Ok(())
    }
}

/// Removes from what a process without memory unmaps all that may not be a mapping then: names of
/// parts of one, and memory that the script unmaps somewhere.
fn keep_mapped(groups: &mut [Group]) {
    let (mut mapped, mut other): (BTreeSet<VarId>, BTreeSet<VarId>) = Default::default();
    for group in &*groups {
        walk(&group.body, &mut |what| match what {
            What::Set(var, _) => _ = other.insert(*var),
            What::Call(call) => match &call.what {
                Calls::Mmap { to, over: None, .. } => mapped.extend(to),
                Calls::Memory { name: "munmap", of, .. } => _ = other.insert(of.var),
                call => other.extend(call.to()),
            },
            _ => {}
        });
    }
    let is_mapped = |range: &Range| mapped.contains(&range.var) && !other.contains(&range.var);
    groups.iter_mut().for_each(|group| retain(&mut group.body, &is_mapped));
}

/// Keeps of what processes unmap that which is so.
fn retain(block: &mut Block, is: &impl Fn(&Range) -> bool) {
    for node in block {
        if let What::Task(task) = &mut node.what {
            task.dropped.retain(is);
            retain(&mut task.body, is);
        }
        node.what.blocks_mut().into_iter().for_each(|inner| retain(inner, is));
    }
}

/// Returns the comment in the lines before a place, or at the end of its line.
fn comment(text: &str, at: At) -> Option<String> {
    let begin = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    if !text[begin..at].trim().is_empty() {
        return None;
    }
    let above = text[..begin].lines().rev().map(str::trim);
    let mut lines: Vec<&str> = above.map_while(|line| line.strip_prefix("//")).collect();
    lines.reverse();
    let line = text[at..].lines().next().unwrap_or("");
    lines.extend(line.split_once("//").map(|(_, comment)| comment));
    let words: Vec<&str> = lines.iter().flat_map(|line| line.split_whitespace()).collect();
    (!words.is_empty()).then(|| words.join(" "))
}
