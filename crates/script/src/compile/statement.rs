//! Statements.

use super::{Around, Compiler, Done, MAX_DEPTH, MAX_OPS, Type, too_long};
use crate::ast::{
    Amount, At, Binary, Block, Call, Change, Expr, ExprKind, Given, Name, Placing, Statement, Task,
    TaskKind, Tree, What,
};
use crate::error::wrong;
use crate::op::{Code, Known, NONE, NOWHERE, Slot, Start, Verb};

/// Whether a body has a `start`, at any depth.
pub(super) fn has_start(tree: &Tree, body: &Block) -> bool {
    let (mut blocks, mut entered) = (vec![body], Vec::new());
    while let Some(block) = blocks.pop() {
        for statement in block {
            match &statement.what {
                What::Start => return true,
                What::Act(call) if !entered.contains(&&call.name.text) => {
                    entered.push(&call.name.text);
                    blocks.extend(tree.program(call));
                }
                what => blocks.extend(what.blocks()),
            }
        }
    }
    false
}

impl<'a> Compiler<'a> {
    pub(super) fn block(&mut self, block: &'a Block) -> Done<()> {
        let all = |compiler: &mut Self| {
            block.iter().try_for_each(|statement| compiler.statement(statement))
        };
        self.scoped(|scope| scope.depth += 1, all)
    }

    /// Compiles a statement. The slots of its intermediate values are then free again.
    fn statement(&mut self, statement: &'a Statement) -> Done<()> {
        if self.scope.depth > MAX_DEPTH {
            let what = format!("blocks and programs are nested more than {MAX_DEPTH} deep");
            return wrong(statement.at, what);
        }
        self.statements += 1;
        if self.statements > MAX_OPS {
            return too_long(statement.at);
        }
        let kept = self.slots;
        self.any_statement(statement)?;
        let last = self.variables.iter().map(|variable| usize::from(variable.slot) + 1).max();
        self.slots = kept.max(last.unwrap_or(0));
        Ok(())
    }

    fn any_statement(&mut self, statement: &'a Statement) -> Done<()> {
        let at = statement.at;
        match &statement.what {
            What::Loop(None, body) => self.until_the_end(body, at),
            What::Loop(Some(limit), body) => self.limited(limit, body, at),
            What::For(name, ends, body) => self.counted(name, ends, body),
            What::While(condition, body) => {
                let around = self.around(false);
                let top = self.here();
                let value = self.typed(condition, Type::Number)?;
                self.emit(Code::Unless(value, around.end), at)?;
                self.inside(around, body)?;
                self.edge(around, at)?;
                self.emit(Code::Goto(top), at)?;
                self.mark(around.end);
                Ok(())
            }
            What::If(branches, last) => self.branches(branches, last.as_ref(), at),
            What::Choose(options) => self.choose(options, at),
            What::Threads(amount, place, body) => self.threads(amount, place, body, at),
            What::Time(body) => {
                let begun = self.slot(at)?;
                self.emit(Code::Know { to: begun, what: Known::Now }, at)?;
                self.block(body)?;
                self.emit(Code::Timed(begun), at)
            }
            What::Start => self.emit(Code::Start, at),
            What::Count(number) => {
                self.counts = true;
                let number = number.as_ref().map(|number| self.typed(number, Type::Number));
                let number = number.transpose()?.unwrap_or(NONE);
                self.emit(Code::Count(number), at)
            }
            What::Break | What::Continue => match self.scope.loops.last() {
                Some(&Around { end, next, .. }) => {
                    let is_break = matches!(statement.what, What::Break);
                    self.emit(Code::Goto(if is_break { end } else { next }), at)
                }
                None => wrong(at, "there is no loop around this statement"),
            },
            What::Return => self.emit(Code::Return, at),
            What::Try(inner) => {
                self.scoped(|scope| scope.attempt = true, |compiler| compiler.statement(inner))
            }
            What::Task(task) => self.task(task, NONE, at),
            What::Assign(name, change, given) => self.assign(name, *change, given),
            What::Act(call) => match self.tree.program(call) {
                Some(body) => self.use_program(call, body),
                None => self.function(call, NONE).map(|_| ()),
            },
        }
    }

    /// Compiles the statements of a program in place of its name.
    fn use_program(&mut self, call: &'a Call, body: &'a Block) -> Done<()> {
        let Name { text, at } = &call.name;
        if !call.args.is_empty() {
            return wrong(*at, format!("`{text}` is a program and has no arguments"));
        }
        if self.scope.within.contains(&text.as_str()) {
            return wrong(*at, format!("the program `{text}` uses itself"));
        }
        self.used.push(text);
        self.scoped(|scope| scope.within.push(text), |compiler| compiler.block(body))
    }

    /// Returns a new loop.
    fn around(&mut self, ends: bool) -> Around {
        Around { end: self.label(), next: self.label(), ends }
    }
    /// Compiles the body of a loop.
    fn inside(&mut self, around: Around, body: &'a Block) -> Done<()> {
        self.scoped(|scope| scope.loops.push(around), |compiler| compiler.block(body))
    }
    /// Emits the check at the end of a round of a loop.
    fn edge(&mut self, around: Around, at: At) -> Done<()> {
        self.mark(around.next);
        let outer = self.scope.loops.iter().find(|outer| outer.ends);
        self.emit(Code::Edge(outer.map_or(NOWHERE, |outer| outer.end)), at)
    }

    fn until_the_end(&mut self, body: &'a Block, at: At) -> Done<()> {
        let around = self.around(true);
        self.mark(around.next);
        let outermost = self.scope.loops.is_empty();
        self.emit(Code::Ends { to: around.end, outermost }, at)?;
        self.inside(around, body)?;
        self.emit(Code::Goto(around.next), at)?;
        self.mark(around.end);
        Ok(())
    }

    /// Compiles `loop NUMBER` and `loop TIME`.
    fn limited(&mut self, limit: &Expr, body: &'a Block, at: At) -> Done<()> {
        match self.expr(limit)? {
            (limit, Type::Time) => {
                let now = self.slot(at)?;
                self.emit(Code::Know { to: now, what: Known::Now }, at)?;
                let end = self.binary(Binary::Add, now, limit, at)?;
                let around = self.around(false);
                self.mark(around.next);
                self.emit(Code::Past(end, around.end), at)?;
                self.inside(around, body)?;
                self.emit(Code::Goto(around.next), at)?;
                self.mark(around.end);
                Ok(())
            }
            (limit, Type::Number) => {
                let counter = self.number(0, at)?;
                self.rounds(counter, limit, body, at)
            }
            (_, of) => wrong(
                limit.at,
                format!("expected a number of rounds or a time, found {}", of.name()),
            ),
        }
    }

    fn counted(&mut self, name: &Name, ends: &[Expr; 2], body: &'a Block) -> Done<()> {
        let at = name.at;
        let from = self.typed(&ends[0], Type::Number)?;
        let end = self.typed(&ends[1], Type::Number)?;
        let counter = self.target(name, Type::Number)?;
        self.emit(Code::Copy { to: counter, from }, at)?;
        self.rounds(counter, end, body, at)
    }

    /// Repeats a body while `counter` is below `end`.
    fn rounds(&mut self, counter: Slot, end: Slot, body: &'a Block, at: At) -> Done<()> {
        let around = self.around(false);
        let less = self.binary(Binary::Less, counter, end, at)?;
        self.emit(Code::Unless(less, around.end), at)?;
        let top = self.here();
        self.inside(around, body)?;
        self.edge(around, at)?;
        self.emit(Code::Next { counter, end, top }, at)?;
        self.mark(around.end);
        Ok(())
    }

    fn branches(
        &mut self,
        branches: &'a [(Expr, Block)],
        last: Option<&'a Block>,
        at: At,
    ) -> Done<()> {
        let end = self.label();
        for (condition, body) in branches {
            let next = self.label();
            let value = self.typed(condition, Type::Number)?;
            self.emit(Code::Unless(value, next), condition.at)?;
            self.block(body)?;
            self.emit(Code::Goto(end), at)?;
            self.mark(next);
        }
        last.map_or(Ok(()), |body| self.block(body))?;
        self.mark(end);
        Ok(())
    }

    fn choose(&mut self, options: &'a [(Expr, Block)], at: At) -> Done<()> {
        let weights = options.iter().map(|(weight, _)| self.typed(weight, Type::Number));
        let weights = weights.collect::<Done<Vec<_>>>()?;
        let table = self.program.tables.len();
        self.program.tables.push(Vec::new());
        self.emit(Code::Choose(table as u16), at)?;
        let end = self.label();
        for ((_, body), weight) in options.iter().zip(weights) {
            let here = self.here();
            self.program.tables[table].push((weight, here));
            self.block(body)?;
            self.emit(Code::Goto(end), at)?;
        }
        self.mark(end);
        Ok(())
    }

    fn threads(&mut self, amount: &Amount, place: &Placing, body: &'a Block, at: At) -> Done<()> {
        let kept = self.variables.len();
        self.several(amount, place, at, Start::Team, body)?;
        self.variables.truncate(kept);
        self.call(Verb::JoinTeam, [NONE; 3], NONE, at)
    }

    fn task(&mut self, task: &'a Task, to: Slot, at: At) -> Done<()> {
        self.begin(Start::Task(task.kind), &task.place, NONE, to, &task.body, at)
    }

    fn assign(&mut self, name: &Name, change: Change, given: &'a Given) -> Done<()> {
        let at = name.at;
        match given {
            Given::Task(task) if change == Change::Set => {
                let of = match task.kind {
                    TaskKind::Fork | TaskKind::Process => Type::Process,
                    TaskKind::Thread => Type::Thread,
                };
                let to = self.target(name, of)?;
                self.task(task, to, at)
            }
            Given::Task(_) => wrong(at, "a task is not a number; use `=`"),
            Given::Expr(expr) => self.assign_value(name, change, expr),
        }
    }

    fn assign_value(&mut self, name: &Name, change: Change, expr: &Expr) -> Done<()> {
        let at = name.at;
        let binary = match change {
            Change::Set => None,
            Change::Add => Some(Binary::Add),
            Change::Subtract => Some(Binary::Subtract),
        };
        let Some(binary) = binary else {
            if let ExprKind::Call(call) = &expr.kind {
                return self.assign_call(name, call);
            }
            let (from, of) = self.expr(expr)?;
            let to = self.target(name, of)?;
            return self.emit(Code::Copy { to, from }, at);
        };
        let Some((to, of)) = self.find(&name.text, at)? else {
            return Err(self.unknown(&name.text, at));
        };
        self.mutable(name)?;
        let (by, given) = self.expr(expr)?;
        if of.binary(binary, given) != Some(of) {
            let (of, given) = (of.name(), given.name());
            return wrong(at, format!("`{}` is {of}, and the other side is {given}", name.text));
        }
        self.emit(Code::Binary { to, binary, a: to, b: by }, at)
    }

    /// Compiles `NAME = CALL(..)`: a call that fails leaves the variable as it is.
    fn assign_call(&mut self, name: &Name, call: &Call) -> Done<()> {
        self.mutable(name)?;
        let at = name.at;
        let known = self.find(&name.text, at)?;
        let to = known.map_or_else(|| self.slot(at), |(slot, _)| Ok(slot))?;
        match (self.function(call, to)?, known) {
            (None, _) => wrong(call.name.at, format!("`{}` has no value", call.name.text)),
            (Some(of), None) => self.declare_at(&name.text, of, to, at),
            (Some(of), Some((_, known))) if of == known => Ok(()),
            (Some(of), Some((_, known))) => {
                let (known, of) = (known.name(), of.name());
                wrong(at, format!("`{}` is {known}, and cannot become {of}", name.text))
            }
        }
    }

    /// Returns the slot of a variable that is set, and adds the variable if it is new.
    fn target(&mut self, name: &Name, of: Type) -> Done<Slot> {
        self.mutable(name)?;
        match self.find(&name.text, name.at)? {
            None => self.declare(&name.text, of, name.at),
            Some((slot, known)) if known == of => Ok(slot),
            Some((_, known)) => {
                let (known, of) = (known.name(), of.name());
                wrong(name.at, format!("`{}` is {known}, and cannot become {of}", name.text))
            }
        }
    }

    fn mutable(&self, name: &Name) -> Done<()> {
        let constants = &self.variables[..self.constants];
        if name.text == "id" || constants.iter().any(|other| other.name == name.text) {
            return wrong(name.at, format!("`{}` cannot be changed", name.text));
        }
        Ok(())
    }
}
