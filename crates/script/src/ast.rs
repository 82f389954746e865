//! The syntax tree of a script.

use mmscale_system::{Backing, PAGE_BYTES};

/// A place in the text, in bytes from its beginning.
pub(crate) type At = usize;

/// A name with its place.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) at: At,
}

impl Tree {
    /// Returns the block with this name.
    pub(crate) fn program(&self, call: &Call) -> Option<&Block> {
        let named = |(name, _): &&(Name, Block)| name.text == call.name.text;
        self.programs.iter().find(named).map(|(_, block)| block)
    }
}

/// A script.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) summary: Option<Name>,
    /// The name of a machine profile.
    pub(crate) profile: Option<Name>,
    pub(crate) cpus: Option<Literal>,
    pub(crate) window: Option<WindowItem>,
    pub(crate) params: Vec<ParamItem>,
    pub(crate) files: Vec<FileItem>,
    pub(crate) swap: Option<SwapItem>,
    pub(crate) memory_groups: Vec<MemoryGroupItem>,
    pub(crate) arms: Vec<ArmItem>,
    /// Blocks with names.
    pub(crate) programs: Vec<(Name, Block)>,
    pub(crate) groups: Vec<GroupItem>,
}

#[derive(Debug)]
pub(crate) struct WindowItem {
    pub(crate) length: Literal,
    pub(crate) after: Option<Literal>,
    pub(crate) live: Option<Literal>,
}

#[derive(Debug)]
pub(crate) struct ParamItem {
    pub(crate) name: Name,
    pub(crate) default: Literal,
    pub(crate) range: Option<[Literal; 2]>,
    pub(crate) help: String,
}

/// `file NAME = SIZE;`: a file that all processes share.
#[derive(Debug)]
pub(crate) struct FileItem {
    pub(crate) name: Name,
    pub(crate) size: Expr,
    pub(crate) backing: Backing,
}

/// The swap area of the machine.
#[derive(Debug)]
pub(crate) struct SwapItem {
    pub(crate) at: At,
    pub(crate) size: Expr,
    pub(crate) device: SwapDevice,
    /// The size of compressed pages in percent; `None` or 0: sizes differ.
    pub(crate) percent: Option<Expr>,
}

/// `group NAME ..`: equal memory groups.
#[derive(Debug)]
pub(crate) struct MemoryGroupItem {
    pub(crate) name: Name,
    /// `None`: one.
    pub(crate) number: Option<Expr>,
    /// Levels below the root; `None`: one.
    pub(crate) depth: Option<Expr>,
    /// Of the memory of each; `None`: no limit.
    pub(crate) limit: Option<Expr>,
}

/// Where pages in swap are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SwapDevice {
    /// On a device with a queue.
    Block,
    /// Compressed, in memory.
    Compressed,
}

#[derive(Debug)]
pub(crate) struct ArmItem {
    pub(crate) name: Name,
    pub(crate) choices: Vec<(Name, Name)>,
}

/// `process NAME ..` at the top of a script: one or more equal processes.
#[derive(Debug)]
pub(crate) struct GroupItem {
    pub(crate) name: Name,
    pub(crate) amount: Option<Amount>,
    pub(crate) place: Placing,
    pub(crate) body: Block,
}

/// How many processes or threads.
#[derive(Debug)]
pub(crate) struct Amount {
    /// `None`: one.
    pub(crate) number: Option<Expr>,
    pub(crate) per_cpu: bool,
}

/// Where tasks are, `priority LEVEL`, and `in GROUP`.
#[derive(Debug, Default)]
pub(crate) struct Placing {
    /// `None`: near the task that starts them, on CPUs without a task while there are any.
    pub(crate) on: Option<On>,
    pub(crate) priority: Option<Expr>,
    /// `None`: the memory group of the task that starts them.
    pub(crate) within: Option<Within>,
}

/// `in NAME[INDEX]`: a memory group.
#[derive(Debug)]
pub(crate) struct Within {
    pub(crate) name: Name,
    /// Counted modulo the number of groups; `None`: the `id` of the task.
    pub(crate) index: Option<Expr>,
}

pub(crate) type Block = Vec<Statement>;

#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) at: At,
    pub(crate) what: What,
}

#[derive(Debug)]
pub(crate) enum What {
    /// Until the end of the run; or so often, or for so long.
    Loop(Option<Expr>, Block),
    For(Name, [Expr; 2], Block),
    While(Expr, Block),
    /// Conditions with their blocks, and the block of `else`.
    If(Vec<(Expr, Block)>, Option<Block>),
    /// Weights with their blocks.
    Choose(Vec<(Expr, Block)>),
    Threads(Amount, Placing, Block),
    /// A part whose duration is recorded.
    Time(Block),
    Start,
    Count(Option<Expr>),
    Break,
    Continue,
    Return,
    /// A statement whose error is not one of the script.
    Try(Box<Statement>),
    Task(Task),
    Assign(Name, Change, Given),
    Act(Call),
}

impl What {
    /// Returns the blocks of a statement.
    pub(crate) fn blocks(&self) -> Vec<&Block> {
        match self {
            Self::Loop(_, body) | Self::For(_, _, body) | Self::While(_, body) => vec![body],
            Self::Threads(_, _, body) | Self::Time(body) => vec![body],
            Self::If(branches, last) => branches.iter().map(|(_, body)| body).chain(last).collect(),
            Self::Choose(options) => options.iter().map(|(_, body)| body).collect(),
            Self::Task(task) | Self::Assign(_, _, Given::Task(task)) => vec![&task.body],
            Self::Try(inner) => inner.what.blocks(),
            Self::Assign(_, _, Given::Expr(_)) | Self::Act(_) | Self::Start => vec![],
            Self::Count(_) | Self::Break | Self::Continue | Self::Return => vec![],
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Set,
    Add,
    Subtract,
}

#[derive(Debug)]
pub(crate) enum Given {
    Task(Task),
    Expr(Expr),
}

/// Where a task is.
#[derive(Clone, Debug)]
pub(crate) enum On<E = Expr> {
    /// `on CPU`.
    Cpu(E),
    /// The next CPU of an order.
    Order(Order),
}

/// An order of CPUs in which tasks are placed, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// `on cores`: one hardware thread of each core, node after node; then the others.
    Cores,
    /// `on nodes`: all CPUs of a node, whole cores first, then those of the next node.
    Nodes,
    /// `spread`: one CPU of each node in turn, whole cores first.
    Spread,
    /// `near`: the CPU of the task that starts them, its core, its cache, its node, the next node.
    Near,
}

impl<E> On<E> {
    /// Returns the CPU, if it is given by its number.
    pub(crate) const fn cpu(&self) -> Option<&E> {
        match self {
            Self::Cpu(cpu) => Some(cpu),
            Self::Order(_) => None,
        }
    }
    /// Returns the same, to change it.
    pub(crate) const fn cpu_mut(&mut self) -> Option<&mut E> {
        match self {
            Self::Cpu(cpu) => Some(cpu),
            Self::Order(_) => None,
        }
    }
}

/// The start of a task that runs a block.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) kind: TaskKind,
    pub(crate) place: Placing,
    pub(crate) body: Block,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TaskKind {
    /// A process with a copy of the memory of its parent.
    Fork,
    /// A process with an empty address space.
    Process,
    /// A thread of the calling process.
    Thread,
}

#[derive(Debug)]
pub(crate) struct Expr {
    pub(crate) at: At,
    pub(crate) kind: ExprKind,
}

#[derive(Debug)]
pub(crate) enum ExprKind {
    Literal(Literal),
    Name(String),
    Call(Call),
    Unary(Unary, Box<Expr>),
    Binary(Binary, Box<[Expr; 2]>),
    /// A page of memory or of a file.
    Page(Box<[Expr; 2]>),
    /// A part of memory or of a file.
    Part(Box<Expr>, [Option<Box<Expr>>; 2]),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unary {
    Minus,
    Not,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Binary {
    Or,
    And,
    Equal,
    Unequal,
    AtMost,
    AtLeast,
    Less,
    More,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) name: Name,
    pub(crate) args: Vec<Expr>,
}

/// A number with its unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Literal {
    pub(crate) at: At,
    /// In bytes, ns, or without a unit.
    pub(crate) value: i64,
    pub(crate) unit: Unit,
}

/// The unit that a number was written in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// None: a plain number.
    One,
    /// Pages; the value is in bytes.
    Pages,
    /// Bytes or a multiple; the value is in bytes.
    Bytes,
    /// A unit of time; the value is in ns.
    Time,
}

impl Unit {
    /// Returns the meaning of the text after a number: a factor to bytes or ns, and the kind of
    /// unit. `None` if there is no such unit.
    pub fn of_suffix(text: &str) -> Option<(u64, Self)> {
        Some(match text {
            "" => (1, Self::One),
            "pages" | "page" => (PAGE_BYTES, Self::Pages),
            "B" => (1, Self::Bytes),
            "KiB" => (1 << 10, Self::Bytes),
            "MiB" => (1 << 20, Self::Bytes),
            "GiB" => (1 << 30, Self::Bytes),
            "ns" => (1, Self::Time),
            "us" => (1_000, Self::Time),
            "ms" => (1_000_000, Self::Time),
            "s" => (1_000_000_000, Self::Time),
            _ => return None,
        })
    }
}
