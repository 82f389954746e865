//! From a syntax tree to a list of operations. Names and types are checked on the way.

mod calls;
mod expr;
mod statement;
mod types;

use crate::ast::{
    Amount, At, Binary, Block, Expr, ExprKind, FileItem, GroupItem, MemoryGroupItem, Name, On,
    Placing, TaskKind, Tree, Within,
};
use crate::error::{Wrong, nearest, unknown, wrong};
use crate::op::{Begin, Code, Known, NONE, NOWHERE, Op, Place, Program, Slot, Start, Verb};
pub use calls::call_names;
pub(crate) use calls::flag;
pub(crate) use types::Type;

type Done<T> = Result<T, Wrong>;

/// Maximum number of operations of a program.
const MAX_OPS: usize = 1 << 16;
/// Maximum depth of blocks in blocks, those of programs included: the compiler calls itself for
/// each.
const MAX_DEPTH: usize = 64;
/// Maximum number of values of a program.
const MAX_SLOTS: usize = 1 << 12;

/// Compiles a script.
pub(crate) fn compile(tree: &Tree, text: &str) -> Done<Program> {
    let lines = text.match_indices('\n').map(|(at, _)| at).collect();
    let mut compiler = Compiler::of(tree, lines);
    for param in &tree.params {
        compiler.declare(&param.name.text, Type::of(param.default.unit), param.name.at)?;
    }
    compiler.program.inherits = !tree.files.is_empty();
    for FileItem { name, size, backing } in &tree.files {
        let (slot, at) = (compiler.typed(size, Type::Size)?, name.at);
        let to = compiler.declare(&name.text, Type::File, at)?;
        compiler.call(Verb::File(*backing), [slot, NONE, NONE], to, at)?;
    }
    if let Some(swap) = &tree.swap {
        compiler.typed(&swap.size, Type::Size)?;
        if let Some(percent) = &swap.percent {
            compiler.typed(percent, Type::Number)?;
        }
    }
    compiler.memory_groups()?;
    compiler.constants = compiler.variables.len();
    if tree.groups.is_empty() {
        return wrong(text.len(), "the script has no process; add `process NAME per_cpu { .. }`");
    }
    for (nth, (name, _)) in tree.programs.iter().enumerate() {
        if tree.programs[..nth].iter().any(|(other, _)| other.text == name.text) {
            return wrong(name.at, format!("a second program `{}`", name.text));
        }
    }
    for (nth, group) in tree.groups.iter().enumerate() {
        if tree.groups[..nth].iter().any(|other| other.name.text == group.name.text) {
            return wrong(group.name.at, format!("a second process `{}`", group.name.text));
        }
        compiler.group(group)?;
    }
    compiler.call(Verb::WaitAll, [NONE; 3], NONE, text.len())?;
    compiler.emit(Code::Return, text.len())?;
    compiler.resolve();
    let unused = |(name, _): &&(Name, Block)| !compiler.used.contains(&name.text.as_str());
    if let Some((name, _)) = tree.programs.iter().find(unused) {
        let what = format!("the program `{0}` is not used; use it as in `{0}();`", name.text);
        return wrong(name.at, what);
    }
    if !compiler.counts {
        let what = "the script counts nothing; add `count;` behind the operation that counts";
        return wrong(tree.groups[0].name.at, what);
    }
    Ok(compiler.program)
}

fn too_long<T>(at: At) -> Done<T> {
    wrong(at, format!("the script has more than {MAX_OPS} operations"))
}

/// A name with its value.
struct Variable {
    name: String,
    slot: Slot,
    of: Type,
}

/// A place that operations go to before it is known: the place of a label is that of a number of
/// [`Compiler::marks`]. Operations have labels in place of places until [`Compiler::resolve`].
type Label = Place;

/// A loop around a statement.
#[derive(Clone, Copy)]
struct Around {
    /// Where `break` goes.
    end: Label,
    /// Where `continue` goes.
    next: Label,
    /// Whether the loop ends with the run.
    ends: bool,
}

/// The surroundings of a statement, which decide what it may do.
#[derive(Clone, Default)]
struct Scope<'a> {
    /// Names of the programs that the statement is in.
    within: Vec<&'a str>,
    loops: Vec<Around>,
    /// Variables below this are those of another process.
    foreign: usize,
    /// Whether the statement is a `try`.
    attempt: bool,
    /// The number of blocks around the statement.
    depth: usize,
}

struct Compiler<'a> {
    tree: &'a Tree,
    scope: Scope<'a>,
    /// Names of the programs that were used.
    used: Vec<&'a str>,
    program: Program,
    variables: Vec<Variable>,
    /// Number of variables that cannot be changed: parameters and files.
    constants: usize,
    /// The first slot of the current expression's values.
    slots: usize,
    /// The places of newlines.
    lines: Vec<usize>,
    /// The place of each label.
    marks: Vec<Place>,
    counts: bool,
    /// The slots of the first memory group's number, and of their number, of each `group`.
    memory_groups: Vec<[Slot; 2]>,
    /// The number of statements so far, those without operations included.
    statements: usize,
}

impl<'a> Compiler<'a> {
    fn of(tree: &'a Tree, lines: Vec<usize>) -> Self {
        Self {
            tree,
            scope: Scope::default(),
            used: Vec::new(),
            program: Program::default(),
            variables: Vec::new(),
            constants: 0,
            slots: 0,
            lines,
            marks: Vec::new(),
            counts: false,
            memory_groups: Vec::new(),
            statements: 0,
        }
    }
    /// Compiles a part of the script in a scope of its own. The scope around it is the same
    /// afterwards, also after an error.
    fn scoped(
        &mut self,
        change: impl FnOnce(&mut Scope<'a>),
        part: impl FnOnce(&mut Self) -> Done<()>,
    ) -> Done<()> {
        let around = self.scope.clone();
        change(&mut self.scope);
        let done = part(self);
        self.scope = around;
        done
    }
    fn emit(&mut self, code: Code, at: At) -> Done<()> {
        if self.program.ops.len() >= MAX_OPS {
            return too_long(at);
        }
        let line = self.lines.partition_point(|newline| *newline < at) as u32 + 1;
        self.program.ops.push(Op { code, line, attempt: self.scope.attempt });
        Ok(())
    }
    fn call(&mut self, verb: Verb, args: [Slot; 3], to: Slot, at: At) -> Done<()> {
        self.emit(Code::Call { verb, args, to }, at)
    }
    /// Returns a new label. Until it is marked, its place is the beginning.
    fn label(&mut self) -> Label {
        self.marks.push(0);
        self.marks.len() as Label - 1
    }
    /// Makes the place of the next operation that of a label.
    fn mark(&mut self, label: Label) {
        self.marks[label as usize] = self.program.ops.len() as Place;
    }
    /// Returns a label for the place of the next operation.
    fn here(&mut self) -> Label {
        let label = self.label();
        self.mark(label);
        label
    }
    /// Replaces labels by their places.
    fn resolve(&mut self) {
        let Program { ops, tables, .. } = &mut self.program;
        let places = ops.iter_mut().filter_map(|op| op.code.place_mut());
        let options = tables.iter_mut().flatten().map(|(_, place)| place);
        for place in places.chain(options).filter(|place| **place != NOWHERE) {
            *place = self.marks[*place as usize];
        }
    }
    /// Returns a new slot.
    fn slot(&mut self, at: At) -> Done<Slot> {
        if self.slots >= MAX_SLOTS {
            return wrong(at, format!("the script has more than {MAX_SLOTS} values"));
        }
        self.slots += 1;
        self.program.slots = self.program.slots.max(self.slots);
        Ok((self.slots - 1) as Slot)
    }
    fn number(&mut self, value: i64, at: At) -> Done<Slot> {
        let slot = self.slot(at)?;
        self.emit(Code::Set(slot, value), at)?;
        Ok(slot)
    }
    fn binary(&mut self, binary: Binary, a: Slot, b: Slot, at: At) -> Done<Slot> {
        let to = self.slot(at)?;
        self.emit(Code::Binary { to, binary, a, b }, at)?;
        Ok(to)
    }
    /// Adds a variable, whose name must be new.
    fn declare(&mut self, name: &str, of: Type, at: At) -> Done<Slot> {
        let slot = self.slot(at)?;
        self.declare_at(name, of, slot, at)?;
        Ok(slot)
    }
    fn declare_at(&mut self, name: &str, of: Type, slot: Slot, at: At) -> Done<()> {
        if expr::KNOWN.iter().any(|(known, ..)| *known == name) {
            return wrong(
                at,
                format!("`{name}` is a value that each program has; use another name"),
            );
        }
        if self.variables.iter().any(|other| other.name == name) {
            return wrong(at, format!("a second `{name}`; use another name"));
        }
        self.variables.push(Variable { name: name.to_owned(), slot, of });
        Ok(())
    }
    /// Adds a variable, which may hide another one.
    fn add(&mut self, name: &str, of: Type, at: At) -> Done<Slot> {
        let slot = self.slot(at)?;
        self.variables.push(Variable { name: name.to_owned(), slot, of });
        Ok(slot)
    }
    /// Returns the variable with this name. Inner ones hide outer ones of the same name.
    fn find(&self, name: &str, at: At) -> Done<Option<(Slot, Type)>> {
        let Some(found) = self.variables.iter().rposition(|other| other.name == name) else {
            return Ok(None);
        };
        let Variable { slot, of, .. } = self.variables[found];
        if found < self.scope.foreign && of.is_of_process() {
            return wrong(
                at,
                format!(
                    "`{name}` belongs to another process; a process that is not forked has \
                         files, but no memory and no descriptors of processes at its start"
                ),
            );
        }
        Ok(Some((slot, of)))
    }
    fn unknown(&self, name: &str, at: At) -> Wrong {
        let known: Vec<&str> = expr::KNOWN
            .iter()
            .map(|(known, ..)| *known)
            .chain(self.variables.iter().map(|variable| variable.name.as_str()))
            .collect();
        Wrong { at, what: unknown("value", name, known.iter().copied()) }
    }

    /// Numbers the memory groups; the root is number 0.
    fn memory_groups(&mut self) -> Done<()> {
        let mut first = NONE;
        for item in &self.tree.memory_groups {
            let at = item.name.at;
            if first == NONE {
                first = self.number(1, at)?;
            }
            let count = match &item.number {
                Some(number) => self.typed(number, Type::Number)?,
                None => self.number(1, at)?,
            };
            item.depth.as_ref().map(|depth| self.typed(depth, Type::Number)).transpose()?;
            item.limit.as_ref().map(|limit| self.typed(limit, Type::Size)).transpose()?;
            self.memory_groups.push([first, count]);
            first = self.binary(Binary::Add, first, count, at)?;
        }
        Ok(())
    }

    /// Compiles the number of a task's memory group.
    fn within(&mut self, kind: Start, within: &Within) -> Done<Slot> {
        if matches!(kind, Start::Team | Start::Task(TaskKind::Thread)) {
            let what = "a thread is in the memory group of its process; remove `in`";
            return wrong(within.name.at, what);
        }
        self.memory_group(&within.name, within.index.as_ref())
    }

    /// Compiles the number of a memory group, `NAME` or `NAME[INDEX]`.
    fn memory_group(&mut self, name: &Name, index: Option<&Expr>) -> Done<Slot> {
        let Name { text, at } = name;
        let named = |item: &MemoryGroupItem| item.name.text == *text;
        let Some(nth) = self.tree.memory_groups.iter().position(named) else {
            let names = self.tree.memory_groups.iter().map(|item| item.name.text.as_str());
            return wrong(*at, unknown("memory group", text, names));
        };
        let index = match (index, self.find("id", *at)?) {
            (Some(index), _) => self.typed(index, Type::Number)?,
            (None, Some((id, _))) => id,
            (None, None) => self.number(0, *at)?,
        };
        let ([first, count], to) = (self.memory_groups[nth], self.slot(*at)?);
        self.emit(Code::MemoryGroup { to, first, count, index }, *at)?;
        Ok(to)
    }

    /// Starts the processes of a group.
    fn group(&mut self, group: &'a GroupItem) -> Done<()> {
        let (at, kept) = (group.name.at, self.variables.len());
        let one = Amount { number: None, per_cpu: false };
        let amount = group.amount.as_ref().unwrap_or(&one);
        self.several(amount, &group.place, at, Start::Group, &group.body)?;
        self.variables.truncate(kept);
        Ok(())
    }

    /// Compiles a number of tasks, in whose place `per_cpu` may be misspelt.
    fn amount(&mut self, number: &Expr) -> Done<Slot> {
        self.typed(number, Type::Number).map_err(|why| match &number.kind {
            ExprKind::Name(name) if nearest(name, ["per_cpu"]).is_some() => {
                Wrong { what: format!("there is no `{name}`; did you mean `per_cpu`?"), ..why }
            }
            _ => why,
        })
    }

    /// Starts tasks in a loop; each sees its number as `id`.
    fn several(
        &mut self,
        amount: &Amount,
        place: &Placing,
        at: At,
        start: Start,
        body: &'a Block,
    ) -> Done<()> {
        let mut number = match &amount.number {
            Some(number) => self.amount(number)?,
            None => self.number(1, at)?,
        };
        let cpus = self.slot(at)?;
        self.emit(Code::Know { to: cpus, what: Known::Cpus }, at)?;
        if amount.per_cpu {
            number = self.binary(Binary::Multiply, number, cpus, at)?;
        }
        let id = self.add("id", Type::Number, at)?;
        self.emit(Code::Set(id, 0), at)?;
        let (top, end) = (self.here(), self.label());
        let less = self.binary(Binary::Less, id, number, at)?;
        self.emit(Code::Unless(less, end), at)?;
        // A process of `per_cpu` is on a CPU of its own; others are placed by the interpreter.
        let own_cpu = if start == Start::Group && amount.per_cpu && place.on.is_none() {
            self.binary(Binary::Remainder, id, cpus, at)?
        } else {
            NONE
        };
        self.begin(start, place, own_cpu, NONE, body, at)?;
        self.emit(Code::Next { counter: id, end: number, top }, at)?;
        self.mark(end);
        Ok(())
    }

    /// Starts a task with its body, on `cpu` or where `on` says.
    fn begin(
        &mut self,
        kind: Start,
        place: &Placing,
        cpu: Slot,
        to: Slot,
        body: &'a Block,
        at: At,
    ) -> Done<()> {
        let (cpu, order) = match &place.on {
            Some(On::Cpu(on)) => (self.typed(on, Type::Number)?, None),
            Some(On::Order(order)) => (NONE, Some(*order)),
            None => (cpu, None),
        };
        let priority = match &place.priority {
            Some(priority) => self.typed(priority, Type::Number)?,
            None => NONE,
        };
        let group = match &place.within {
            Some(within) => self.within(kind, within)?,
            None => NONE,
        };
        let (start, over) = (self.label(), self.label());
        let begin = Begin { kind, body: start, cpu, order, group, priority, to };
        self.emit(Code::Begin(begin), at)?;
        self.emit(Code::Goto(over), at)?;
        self.mark(start);
        let kept = self.variables.len();
        // Nothing that a body does reaches the task that started it.
        let change = |scope: &mut Scope<'a>| {
            scope.loops.clear();
            scope.attempt = false;
            if kind == Start::Task(TaskKind::Process) {
                scope.foreign = kept;
            }
        };
        self.scoped(change, |compiler| {
            if kind == Start::Group && !statement::has_start(compiler.tree, body) {
                compiler.emit(Code::Start, at)?;
            }
            compiler.block(body)?;
            compiler.emit(Code::Return, at)
        })?;
        self.variables.truncate(kept);
        self.mark(over);
        Ok(())
    }
}
