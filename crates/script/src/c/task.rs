//! Forks and threads in C.

use super::emit::{Emitter, Ending};
use super::helpers::{self, Helper};
use super::layout::Number;
use super::lower::Done;
use super::text::Lines;
use super::tree::{Block, Calls, Expr, GLOBAL, Kind, ONE, Task, VarId, What, ZERO, walk};
use crate::ast::{Binary, On, Order};
use crate::compile::Type;
use crate::error::wrong;
use std::collections::BTreeSet;

/// Whether a body leaves children that it does not wait for, and threads that it does not join.
pub(super) fn leaves(body: &Block) -> (bool, bool) {
    let mut own = Vec::new();
    level(body, &mut own);
    let is_call = |is: &dyn Fn(&Calls) -> bool| {
        own.iter().any(|what| matches!(what, What::Call(call) if is(&call.what)))
    };
    let all = is_call(&|call| matches!(call, Calls::WaitAll));
    let (mut children, mut threads) = (false, false);
    for what in &own {
        let What::Task(task) = what else { continue };
        let to = task.to;
        match task.kind {
            Kind::Fork | Kind::Process => {
                let waits = |call: &Calls| matches!(call, Calls::Wait(of) if Some(*of) == to);
                children |= !all && !is_call(&waits);
            }
            Kind::Thread => {
                let joins = |call: &Calls| matches!(call, Calls::Join(of) if Some(*of) == to);
                threads |= !is_call(&joins);
            }
            Kind::Team => {}
        }
    }
    (children, threads)
}

/// Collects the statements of a body, without those of tasks.
fn level<'a>(body: &'a Block, own: &mut Vec<&'a What>) {
    for node in body {
        own.push(&node.what);
        node.what.blocks().into_iter().for_each(|block| level(block, own));
    }
}

impl Emitter<'_> {
    /// Writes the start of a task as a statement.
    pub(super) fn task(&mut self, task: &Task, out: &mut Lines) -> Done<()> {
        match task.kind {
            Kind::Team => self.team(task, out),
            Kind::Thread => {
                let call = self.started(task, out)?;
                match task.to.filter(|to| self.is_read(*to)) {
                    Some(to) => out.line(&format!("{} = {call};", self.name(to))),
                    None => out.line(&format!("{call};")),
                }
                Ok(())
            }
            Kind::Fork | Kind::Process => {
                let call = self.started(task, out)?;
                if let Some(to) = task.to.filter(|to| self.is_read(*to)) {
                    out.line(&format!("{} = {call};", self.name(to)));
                    return self.child(task, out);
                }
                self.body_of(task, &format!("if (!{call})"), out)
            }
        }
    }

    /// Returns the call that starts a fork or a thread.
    pub(super) fn started(&mut self, task: &Task, out: &mut Lines) -> Done<String> {
        match task.kind {
            Kind::Fork | Kind::Process => {
                self.need(Helper::Fork);
                let cpu = self.child_cpu(task)?;
                Ok(format!("start_child({cpu})"))
            }
            Kind::Thread | Kind::Team => {
                let first = self.ending == Ending::Group;
                let number = if first { self.layout.groups } else { self.layout.tasks };
                let cpu = match &task.on {
                    Some(On::Cpu(on)) => self.expr(on),
                    Some(On::Order(order)) => {
                        self.need(Helper::Threads);
                        self.next(*order, "threads + 1")
                    }
                    None => {
                        self.need(Helper::Threads);
                        self.near("threads + 1", number, first)?
                    }
                };
                if self.needs.contains(&Helper::Threads) {
                    out.line("threads++;");
                }
                let (name, arg) = self.thread(task, &cpu)?;
                let arg = arg.join(", ");
                Ok(format!(
                    "start_thread({name}, &(struct {name}){{ {arg} }}, sizeof(struct {name}))"
                ))
            }
        }
    }

    fn child_cpu(&mut self, task: &Task) -> Done<String> {
        match &task.on {
            Some(On::Cpu(on)) => return Ok(self.expr(on)),
            Some(On::Order(order)) => {
                self.need(Helper::Children);
                return Ok(self.next(*order, "children + 1"));
            }
            None => {}
        }
        match self.layout.tasks {
            Number::EachCpu => Ok("cpu".to_owned()),
            number => {
                self.need(Helper::Children);
                self.near("children + 1", number, false)
            }
        }
    }

    /// Returns the CPU that is `nth` places behind this one in an order.
    pub(super) fn next(&mut self, order: Order, nth: &str) -> String {
        self.need(Helper::NextInOrder);
        format!("next_in_order({}, {nth})", helpers::order(order))
    }

    /// Returns the CPU of the nth task near this one.
    fn near(&mut self, nth: &str, number: Number, is_first: bool) -> Done<String> {
        let apart = match number {
            Number::EachCpu | Number::Always(0 | 1) => return Ok(format!("(cpu + {nth}) % cpus")),
            Number::Always(apart) => apart,
            Number::Other => {
                let what = "the CPU of this task depends on a number of tasks that is neither \
                            fixed nor that of CPUs; place it with `on CPU`";
                return wrong(self.at, what);
            }
        };
        self.need(Helper::NextCpu);
        let full = if is_first || nth != "children + 1" {
            format!("(cpu + {nth}) % cpus")
        } else {
            "cpu".to_owned()
        };
        Ok(format!("cpus > {apart} ? next_cpu({nth}, {apart}) : {full}"))
    }

    /// Writes the body of a fork whose number is in its variable.
    pub(super) fn child(&mut self, task: &Task, out: &mut Lines) -> Done<()> {
        let head = match task.to {
            Some(to) if matches!(task.kind, Kind::Fork | Kind::Process) => {
                format!("if (!{})", self.name(to))
            }
            _ => return Ok(()),
        };
        self.body_of(task, &head, out)
    }

    fn body_of(&mut self, task: &Task, head: &str, out: &mut Lines) -> Done<()> {
        let around = (self.ending, self.leaves);
        (self.ending, self.leaves) = (Ending::Fork, leaves(&task.body));
        let mut lines = Lines::at(out.indent + 1);
        if let Some(priority) = &task.priority {
            self.need(Helper::Realtime);
            let line = format!("realtime({});", self.expr(priority));
            lines.line(&line);
        }
        self.drop_memory(task, &mut lines);
        self.prelude = std::mem::replace(&mut lines, Lines::at(out.indent + 1)).into_text();
        self.block(&task.body, &mut lines)?;
        self.end(&mut lines);
        (self.ending, self.leaves) = around;
        super::emit::braced(head, &lines.into_text(), out);
        Ok(())
    }

    /// Unmaps what a process without memory has from its parent.
    fn drop_memory(&mut self, task: &Task, out: &mut Lines) {
        let mut is_first = true;
        for range in &task.dropped {
            if std::mem::take(&mut is_first) {
                out.comment("As after exec: nothing of the parent's memory.");
            }
            let text = format!("munmap({}, {})", self.name(range.var), self.expr(&range.size));
            super::call::fails(&text, "munmap", out);
        }
    }

    /// Writes a team: its threads, and the wait for them.
    fn team(&mut self, task: &Task, out: &mut Lines) -> Done<()> {
        let Some((amount, id)) = &task.amount else { return Ok(()) };
        let first = self.ending == Ending::Group;
        let number = if first { self.layout.groups } else { self.layout.tasks };
        let cpu = match &task.on {
            Some(On::Cpu(on)) => self.expr(on),
            Some(On::Order(order)) => {
                let id = self.name(*id);
                self.next(*order, &id)
            }
            None => self.near("id", number, first)?,
        };
        let constant = self.teams.get(id).cloned();
        let amount = self.expr(amount);
        let (name, arg) = self.thread(task, &cpu)?;
        self.need(Helper::JoinThread);
        let team = constant.clone().unwrap_or_else(|| "team".to_owned());
        let id = self.name(*id);
        let head = format!("for (long {id} = 0; {id} < {amount}; {id}++)");
        let mut lines = Lines::at(out.indent + usize::from(constant.is_none()));
        if constant.is_none() {
            lines.line(&format!("pthread_t team[{amount}];"));
            lines.blank();
        }
        let mut inner = Lines::at(lines.indent + 1);
        let short = format!("struct {name} arg = {{ {} }};", arg.join(", "));
        if inner.fits(&short) {
            inner.line(&short);
        } else {
            inner.line(&format!("struct {name} arg = {{"));
            inner.indent += 1;
            arg.iter().for_each(|field| inner.line(&format!("{field},")));
            inner.indent -= 1;
            inner.line("};");
        }
        inner.blank();
        inner.line(&format!("{team}[{id}] = start_thread({name}, &arg, sizeof(arg));"));
        super::emit::braced(&head, &inner.into_text(), &mut lines);
        let mut inner = Lines::at(lines.indent + 1);
        inner.line(&format!("join_thread({team}[{id}]);"));
        super::emit::braced(&head, &inner.into_text(), &mut lines);
        if constant.is_some() {
            out.raw(&lines.into_text());
            return Ok(());
        }
        out.line("{");
        out.raw(&lines.into_text());
        out.line("}");
        Ok(())
    }

    /// Writes the function of a thread. Returns its name, and the fields of its argument.
    fn thread(&mut self, task: &Task, cpu: &str) -> Done<(String, Vec<String>)> {
        self.need(Helper::StartThread);
        let base = match &task.name {
            Some(name) => format!("{name}_thread"),
            None => format!("{}_thread", self.function.trim_end_matches("_task")),
        };
        let (mut name, mut nth) = (base.clone(), 1);
        while !self.names.insert(name.clone()) {
            nth += 1;
            name = format!("{base}{nth}");
        }
        let fields = self.fields(task, cpu);
        // The state of the function around, while that of the thread is written.
        let around = (
            std::mem::replace(&mut self.function, name.clone()),
            std::mem::take(&mut self.undeclared),
            self.ending,
            self.leaves,
        );
        (self.ending, self.leaves) = (Ending::Thread, leaves(&task.body));
        self.undeclared = self.owned(&task.body, task.owner);
        self.told = false;
        (self.opening, self.prelude) = begin(&name, &fields);
        let mut body = Lines::at(1);
        let done = self.block(&task.body, &mut body);
        self.end(&mut body);
        (self.function, self.undeclared, self.ending, self.leaves) = around;
        done?;
        let declared: String =
            fields.iter().map(|field| format!("\t{};\n", field.declared)).collect();
        let body = body.into_text();
        self.threads.push(format!(
            "struct {name} {{\n{declared}}};\n\nstatic void *{name}(void *arg)\n{{\n{body}}}\n"
        ));
        let given = fields.iter().map(|Field { name, value, .. }| format!(".{name} = {value}"));
        Ok((name, given.collect()))
    }

    /// Returns the argument of a thread: its CPU, and copies of variables.
    fn fields(&mut self, task: &Task, cpu: &str) -> Vec<Field> {
        let of = |declared: &str, name: &str, value: &str| Field {
            declared: declared.to_owned(),
            name: name.to_owned(),
            value: value.to_owned(),
        };
        let mut fields = vec![of("int cpu", "cpu", cpu)];
        if let Some(priority) = &task.priority {
            self.need(Helper::Realtime);
            fields.push(of("int priority", "priority", &self.expr(priority)));
        }
        if self.needs.contains(&Helper::Random) {
            fields.push(of("unsigned long rng", "rng", "next_random()"));
        }
        let id = task.amount.as_ref().map(|(_, id)| *id);
        let mut copied: Vec<VarId> = id.filter(|id| self.is_read(*id)).into_iter().collect();
        copied.extend(self.captured(task).into_iter().filter(|var| Some(*var) != id));
        for var in copied {
            let name = self.name(var);
            fields.push(of(&self.declaration(var), &name, &name));
            if self.has_size(var) {
                let size = self.size_name(var);
                fields.push(of(&format!("long {size}"), &size, &size));
            }
        }
        fields
    }

    /// Returns the variables that a function declares.
    pub(super) fn owned(&self, body: &Block, owner: super::tree::Owner) -> BTreeSet<VarId> {
        let mut teams = BTreeSet::new();
        walk(body, &mut |what| {
            if let What::Task(task) = what {
                teams.extend(task.amount.iter().map(|(_, id)| *id));
            }
        });
        let own = |var: &VarId| self.script.vars[var.0].owner == owner && !teams.contains(var);
        mentioned(body).into_iter().filter(own).collect()
    }

    /// Returns the variables of others that a thread has copies of.
    fn captured(&self, task: &Task) -> Vec<VarId> {
        let foreign = |var: &VarId| {
            let owner = self.script.vars[var.0].owner;
            owner != GLOBAL && owner != task.owner && !self.inside(task, owner)
        };
        mentioned(&task.body).into_iter().filter(foreign).collect()
    }
    /// Whether a function is that of a thread within a thread.
    fn inside(&self, task: &Task, owner: super::tree::Owner) -> bool {
        super::tree::has(
            &task.body,
            |what| matches!(what, What::Task(inner) if inner.owner == owner),
        )
    }

    /// Returns how many tasks of a block wait at `start`.
    pub(super) fn starts(&self, block: &Block) -> Done<Expr> {
        let mut sum = ZERO;
        for node in block {
            let own = match &node.what {
                What::Start => ONE,
                What::Task(task) => {
                    let one = self.starts(&task.body)?;
                    let amount = task.amount.as_ref().map_or(ONE, |(amount, _)| amount.clone());
                    Expr::binary(Binary::Multiply, amount, one)
                }
                What::For(_, [from, to], body) => {
                    let one = self.starts(body)?;
                    let rounds = Expr::binary(Binary::Subtract, to.clone(), from.clone());
                    let own = body.iter().any(|node| matches!(node.what, What::Start));
                    if !one.is_zero() && (own || !rounds.is_constant()) {
                        return unknown_start(node.at);
                    }
                    Expr::binary(Binary::Multiply, rounds, one)
                }
                what => {
                    for block in what.blocks() {
                        if !self.starts(block)?.is_zero() {
                            return unknown_start(node.at);
                        }
                    }
                    ZERO
                }
            };
            sum = Expr::binary(Binary::Add, sum, own);
        }
        Ok(sum)
    }

    /// Whether it is a thread.
    pub(super) fn has_threads(&self) -> bool {
        self.needs.contains(&Helper::StartThread)
            || self.script.vars.iter().any(|var| var.of == Type::Thread)
    }
}

fn unknown_start<T>(at: usize) -> Done<T> {
    wrong(at, "the number of tasks that wait at this `start` is not known before a run")
}

/// Returns all variables of a block, those of tasks included.
fn mentioned(body: &Block) -> BTreeSet<VarId> {
    let mut vars = BTreeSet::new();
    walk(body, &mut |what| {
        vars.extend(what.reads());
        vars.extend(what.sets());
        match what {
            What::Change(var, ..) => _ = vars.insert(*var),
            What::Task(task) => vars.extend(task.amount.iter().map(|(_, id)| *id)),
            _ => {}
        }
    });
    vars
}

/// A member of the argument of a thread.
struct Field {
    declared: String,
    name: String,
    value: String,
}

/// Returns the first declarations of a thread's function, and its first statements.
fn begin(name: &str, fields: &[Field]) -> (String, String) {
    let (mut opening, mut prelude) = (Lines::at(1), Lines::at(1));
    opening.line(&format!("struct {name} *self = arg;"));
    for Field { declared, name, .. } in fields {
        match name.as_str() {
            "cpu" => {}
            "priority" => prelude.line("realtime(self->priority);"),
            "rng" => prelude.line("rng = self->rng;"),
            name => opening.line(&format!("{declared} = self->{name};")),
        }
    }
    prelude.line("pin(self->cpu);");
    prelude.line("free(self);");
    (opening.into_text(), prelude.into_text())
}
