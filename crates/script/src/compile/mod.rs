//! From a syntax tree to a list of operations. Names and types are checked on the way.

mod calls;
mod expr;
mod statement;
mod types;

use crate::ast::{Amount, At, Binary, Block, GroupItem, Name, Placing, TaskKind, Tree};
use crate::error::{Wrong, unknown, wrong};
use crate::op::{Begin, Code, Known, NONE, NOWHERE, Op, Place, Program, Slot, Start, Verb};
pub use calls::call_names;
pub(crate) use types::Type;

type Done<T> = Result<T, Wrong>;

/// Maximum number of operations of a program.
const MAX_OPS: usize = 1 << 16;
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
    for (name, size) in &tree.files {
        let (slot, at) = (compiler.typed(size, Type::Size)?, name.at);
        let to = compiler.declare(&name.text, Type::File, at)?;
        compiler.call(Verb::File, [slot, NONE, NONE], to, at)?;
    }
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

/// A name with its value.
struct Variable {
    name: String,
    slot: Slot,
    of: Type,
}

/// A loop around a statement.
struct Around {
    /// Jumps of `break`, to be set to the loop's end.
    breaks: Vec<usize>,
    /// Jumps of `continue`, to be set to its next round.
    continues: Vec<usize>,
    /// Whether the loop ends with the run, and the jumps that leave it then.
    ends: Option<Vec<usize>>,
}

struct Compiler<'a> {
    tree: &'a Tree,
    /// Names of the programs that the current statement is in.
    within: Vec<&'a str>,
    /// Names of the programs that were used.
    used: Vec<&'a str>,
    program: Program,
    variables: Vec<Variable>,
    /// Variables below this are those of another process.
    foreign: usize,
    /// Number of variables that cannot be changed: parameters and files.
    constants: usize,
    loops: Vec<Around>,
    /// The first slot of the current expression's values.
    slots: usize,
    /// The places of newlines.
    lines: Vec<usize>,
    /// Whether the current statement is a `try`.
    attempt: bool,
    counts: bool,
}

impl<'a> Compiler<'a> {
    fn of(tree: &'a Tree, lines: Vec<usize>) -> Self {
        Self {
            tree,
            within: Vec::new(),
            used: Vec::new(),
            program: Program::default(),
            variables: Vec::new(),
            foreign: 0,
            constants: 0,
            loops: Vec::new(),
            slots: 0,
            lines,
            attempt: false,
            counts: false,
        }
    }
    fn emit(&mut self, code: Code, at: At) -> Done<usize> {
        if self.program.ops.len() >= MAX_OPS {
            return wrong(at, format!("the script has more than {MAX_OPS} operations"));
        }
        let line = self.lines.partition_point(|newline| *newline < at) as u32 + 1;
        self.program.ops.push(Op { code, line, attempt: self.attempt });
        Ok(self.program.ops.len() - 1)
    }
    fn call(&mut self, verb: Verb, args: [Slot; 3], to: Slot, at: At) -> Done<()> {
        self.emit(Code::Call { verb, args, to }, at).map(|_| ())
    }
    fn here(&self) -> Place {
        self.program.ops.len() as Place
    }
    /// Sets the place that a jump goes to.
    fn set(&mut self, jump: usize, place: Place) {
        match &mut self.program.ops[jump].code {
            Code::Goto(to) | Code::Unless(_, to) | Code::Ends { to, .. } => *to = place,
            Code::Past(_, to) | Code::Edge(to) => *to = place,
            other => panic!("{other:?} does not jump"),
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
        if found < self.foreign && of.is_of_process() {
            return wrong(
                at,
                format!(
                    "`{name}` belongs to another process; a process that is not forked has no \
                         memory and no descriptors at its start"
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

    /// Starts the processes of a group.
    fn group(&mut self, group: &'a GroupItem) -> Done<()> {
        let (at, kept) = (group.name.at, self.variables.len());
        let one = Amount { number: None, per_cpu: false };
        let amount = group.amount.as_ref().unwrap_or(&one);
        self.several(amount, &group.place, at, Start::Group, &group.body)?;
        self.variables.truncate(kept);
        Ok(())
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
            Some(number) => self.typed(number, Type::Number)?,
            None => self.number(1, at)?,
        };
        let cpus = self.slot(at)?;
        self.emit(Code::Know { to: cpus, what: Known::Cpus }, at)?;
        if amount.per_cpu {
            number = self.binary(Binary::Multiply, number, cpus, at)?;
        }
        let id = self.add("id", Type::Number, at)?;
        self.emit(Code::Set(id, 0), at)?;
        let top = self.here();
        let less = self.binary(Binary::Less, id, number, at)?;
        let exit = self.emit(Code::Unless(less, NOWHERE), at)?;
        let place_of_id = match &place.on {
            Some(_) => None,
            None => Some(self.binary(Binary::Remainder, id, cpus, at)?),
        };
        self.begin(start, place, place_of_id, NONE, body, at)?;
        self.emit(Code::Next { counter: id, end: number, top }, at)?;
        let end = self.here();
        self.set(exit, end);
        Ok(())
    }

    /// Starts a task with its body. Without `cpu` and `on`, it runs on the CPU of its parent.
    fn begin(
        &mut self,
        kind: Start,
        place: &Placing,
        cpu: Option<Slot>,
        to: Slot,
        body: &'a Block,
        at: At,
    ) -> Done<()> {
        let cpu = match (&place.on, cpu) {
            (Some(on), _) => self.typed(on, Type::Number)?,
            (None, Some(cpu)) => cpu,
            (None, None) => {
                let cpu = self.slot(at)?;
                self.emit(Code::Know { to: cpu, what: Known::Cpu }, at)?;
                cpu
            }
        };
        let priority = match &place.priority {
            Some(priority) => self.typed(priority, Type::Number)?,
            None => NONE,
        };
        let start = self.here() + 2;
        self.emit(Code::Begin(Begin { kind, body: start, cpu, priority, to }), at)?;
        let over = self.emit(Code::Goto(NOWHERE), at)?;
        // Nothing that a body does reaches the task that started it.
        let attempt = std::mem::take(&mut self.attempt);
        let (kept, foreign) = (self.variables.len(), self.foreign);
        if kind == Start::Task(TaskKind::Process) {
            self.foreign = kept;
        }
        let loops = std::mem::take(&mut self.loops);
        if kind == Start::Group && !statement::has_start(self.tree, body) {
            self.emit(Code::Start, at)?;
        }
        self.block(body)?;
        self.emit(Code::Return, at)?;
        self.loops = loops;
        self.variables.truncate(kept);
        (self.foreign, self.attempt) = (foreign, attempt);
        let end = self.here();
        self.set(over, end);
        Ok(())
    }
}
