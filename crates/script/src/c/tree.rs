//! The form of a program in C: statements with the programs of the script in place of their names,
//! each variable once, and sizes of memory as expressions.

use crate::ast::{At, Binary, Change, On, Unary, Unit};
use crate::compile::Type;

/// The number of a variable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct VarId(pub(super) usize);

/// The number of a function in C. Forks are within the function of their parent, threads have
/// their own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Owner(pub(super) usize);

/// The owner of files of the script, which all processes share.
pub(super) const GLOBAL: Owner = Owner(0);

/// A variable.
#[derive(Clone, Debug)]
pub(super) struct Var {
    /// The name in C.
    pub(super) name: String,
    pub(super) of: Type,
    pub(super) owner: Owner,
    /// The sizes of the memory or the file that it was set to, in bytes.
    pub(super) sizes: Vec<Expr>,
}

/// A value without an effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Expr {
    Literal(i64, Unit),
    /// A parameter, by its place.
    Param(usize),
    Var(VarId),
    Cpu,
    Cpus,
    Nodes,
    Now,
    Ok,
    Unary(Unary, Box<Expr>),
    Binary(Binary, Box<[Expr; 2]>),
    /// The smaller or (`true`) the larger one.
    Pick(bool, Box<[Expr; 2]>),
    Random(Box<[Expr; 2]>),
    /// The bytes of the memory or file of a variable.
    SizeOf(VarId),
    /// The pages of a number of bytes.
    PagesIn(Box<Expr>),
    /// The number of present pages.
    Present(Box<Range>),
    /// The beginning of a part of memory, or the descriptor of a file.
    Address(Box<Range>),
}

/// A part of memory or of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Range {
    pub(super) var: VarId,
    /// In bytes.
    pub(super) from: Expr,
    pub(super) size: Expr,
}

pub(super) const ZERO: Expr = Expr::Literal(0, Unit::One);
pub(super) const ONE: Expr = Expr::Literal(1, Unit::One);
pub(super) const PAGE: Expr = Expr::Literal(mmscale_system::PAGE_BYTES as i64, Unit::Pages);

impl Expr {
    pub(super) fn binary(binary: Binary, a: Self, b: Self) -> Self {
        match (binary, &a, &b) {
            (Binary::Add, a, _) if a.is_zero() => b,
            (Binary::Add | Binary::Subtract, _, b) if b.is_zero() => a,
            (Binary::Multiply, a, _) if *a == ONE => b,
            (Binary::Multiply, _, b) if *b == ONE => a,
            (Binary::Multiply, a, b) if a.is_zero() || b.is_zero() => ZERO,
            (Binary::Multiply, Self::Literal(n, Unit::One), Self::Literal(size, Unit::Pages)) => {
                Self::Literal(n.saturating_mul(*size), Unit::Pages)
            }
            (Binary::Subtract, Self::Literal(a, Unit::One), Self::Literal(b, Unit::One)) => {
                Self::Literal(a.saturating_sub(*b), Unit::One)
            }
            (Binary::Subtract, Self::Binary(Binary::Add, sides), b) if sides[0] == *b => {
                sides[1].clone()
            }
            _ => Self::Binary(binary, Box::new([a, b])),
        }
    }
    pub(super) const fn is_zero(&self) -> bool {
        matches!(self, Self::Literal(0, _))
    }
    /// Returns the parts.
    pub(super) fn parts(&self) -> Vec<&Self> {
        match self {
            Self::Unary(_, of) | Self::PagesIn(of) => vec![of],
            Self::Binary(_, sides) | Self::Pick(_, sides) | Self::Random(sides) => {
                sides.iter().collect()
            }
            Self::Present(range) => vec![&range.from, &range.size],
            Self::Address(range) => vec![&range.from],
            _ => vec![],
        }
    }
    /// Whether it or a part of it is so.
    pub(super) fn any(&self, is: &mut impl FnMut(&Self) -> bool) -> bool {
        is(self) || self.parts().into_iter().any(|part| part.any(is))
    }
    /// Whether it has the same value everywhere in a run.
    pub(super) fn is_constant(&self) -> bool {
        let changes = |part: &Self| {
            !matches!(
                part,
                Self::Literal(..)
                    | Self::Param(_)
                    | Self::Cpus
                    | Self::Nodes
                    | Self::Unary(..)
                    | Self::Binary(..)
                    | Self::Pick(..)
                    | Self::PagesIn(_)
            )
        };
        !self.any(&mut { changes })
    }
    /// Whether each evaluation gives the same, as long as no variable is set.
    pub(super) fn is_pure(&self) -> bool {
        let impure = |part: &Self| {
            matches!(part, Self::Random(_) | Self::Now | Self::Present(_) | Self::SizeOf(_))
        };
        !self.any(&mut { impure })
    }
}

/// A statement, with the comment of the script before or behind it.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) comment: Option<String>,
    pub(super) at: At,
    pub(super) what: What,
}

pub(super) type Block = Vec<Node>;

#[derive(Clone, Debug)]
pub(super) enum What {
    /// Until the end of the run.
    Loop(Block),
    /// Until a time, or the end of the run.
    Until(VarId, Block),
    For(VarId, [Expr; 2], Block),
    While(Expr, Block),
    If(Vec<(Expr, Block)>, Option<Block>),
    /// One of the blocks, by its number.
    Switch(Expr, Vec<Block>),
    Start,
    Count(Expr),
    Break,
    Continue,
    Return,
    Set(VarId, Expr),
    Change(VarId, Change, Expr),
    Call(Call),
    Task(Task),
}

/// A system call, or an access to memory.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) what: Calls,
    /// Whether it may fail.
    pub(super) attempt: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Calls {
    Mmap {
        to: Option<VarId>,
        /// The memory that it replaces.
        over: Option<Range>,
        file: Option<Range>,
        size: Expr,
        prot: &'static str,
        flags: Vec<&'static str>,
    },
    Mremap {
        to: Option<VarId>,
        of: Range,
        size: Expr,
        flags: &'static str,
        over: Option<Range>,
    },
    /// munmap, mprotect, madvise, mlock, munlock: the name in C, the memory, and the last argument.
    Memory {
        name: &'static str,
        of: Range,
        last: Option<String>,
    },
    Mbind {
        of: Range,
        node: Expr,
        flags: &'static str,
    },
    Write(Range),
    Read(Range),
    Check(Range),
    Sleep(Expr),
    Compute(Expr),
    Memfd {
        to: Option<VarId>,
        size: Expr,
    },
    Fadvise {
        of: Range,
        advice: &'static str,
    },
    Close(VarId),
    Wait(VarId),
    WaitAll,
    Join(VarId),
    Kill(VarId),
    PidfdOpen {
        to: Option<VarId>,
        of: VarId,
    },
    Mrelease(VarId),
    OomScoreAdj(VarId, Expr),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Fork,
    /// A process with empty memory.
    Process,
    Thread,
    /// Threads, and a wait for all of them.
    Team,
}

/// The start of a task.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) kind: Kind,
    /// The number of threads of a team, and the variable that numbers them.
    pub(super) amount: Option<(Expr, VarId)>,
    pub(super) on: Option<On<Expr>>,
    pub(super) priority: Option<Expr>,
    pub(super) to: Option<VarId>,
    /// The program that is the whole of its body.
    pub(super) name: Option<String>,
    pub(super) body: Block,
    /// The function of a thread. Forks have that of their parent.
    pub(super) owner: Owner,
    pub(super) attempt: bool,
    /// Memory that a process without memory unmaps.
    pub(super) dropped: Vec<Range>,
}

/// The processes of a group at the top of the script.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) amount: Expr,
    /// Whether each is on a CPU of its own.
    pub(super) per_cpu: bool,
    pub(super) on: Option<On<Expr>>,
    pub(super) priority: Option<Expr>,
    pub(super) id: VarId,
    pub(super) body: Block,
    pub(super) owner: Owner,
}

impl What {
    /// Returns the blocks of a statement, without those of tasks.
    pub(super) fn blocks(&self) -> Vec<&Block> {
        match self {
            Self::Loop(body) | Self::Until(_, body) | Self::For(_, _, body) => vec![body],
            Self::While(_, body) => vec![body],
            Self::If(branches, last) => branches.iter().map(|(_, body)| body).chain(last).collect(),
            Self::Switch(_, options) => options.iter().collect(),
            _ => vec![],
        }
    }
    /// Returns the same, to change them.
    pub(super) fn blocks_mut(&mut self) -> Vec<&mut Block> {
        match self {
            Self::Loop(body) | Self::Until(_, body) | Self::For(_, _, body) => vec![body],
            Self::While(_, body) => vec![body],
            Self::If(branches, last) => {
                branches.iter_mut().map(|(_, body)| body).chain(last).collect()
            }
            Self::Switch(_, options) => options.iter_mut().collect(),
            _ => vec![],
        }
    }
    /// Returns the values that a statement itself evaluates.
    pub(super) fn exprs(&self) -> Vec<&Expr> {
        match self {
            Self::For(_, ends, _) => ends.iter().collect(),
            Self::While(value, _) | Self::Switch(value, _) | Self::Count(value) => vec![value],
            Self::Set(_, value) | Self::Change(_, _, value) => vec![value],
            Self::If(branches, _) => branches.iter().map(|(value, _)| value).collect(),
            Self::Call(call) => call.what.exprs(),
            Self::Task(task) => {
                let amount = task.amount.iter().map(|(amount, _)| amount);
                let dropped = task.dropped.iter().map(|range| &range.size);
                amount
                    .chain(task.on.iter().filter_map(On::cpu))
                    .chain(&task.priority)
                    .chain(dropped)
                    .collect()
            }
            _ => vec![],
        }
    }
    /// Returns the variable that a statement sets, if it always does.
    pub(super) fn sets(&self) -> Option<VarId> {
        match self {
            Self::Set(to, _) | Self::For(to, ..) => Some(*to),
            Self::Call(call) => call.what.to(),
            Self::Task(task) => task.to,
            _ => None,
        }
    }
    /// Whether a failure leaves the variable as it is.
    pub(super) const fn is_attempt(&self) -> bool {
        match self {
            Self::Call(call) => call.attempt,
            Self::Task(task) => task.attempt,
            _ => false,
        }
    }
    /// Returns the variables that a statement itself reads.
    pub(super) fn reads(&self) -> Vec<VarId> {
        let mut read = Vec::new();
        let mut note = |expr: &Expr| {
            match expr {
                Expr::Var(var) | Expr::SizeOf(var) => read.push(*var),
                Expr::Present(range) | Expr::Address(range) => read.push(range.var),
                _ => {}
            }
            false
        };
        for expr in self.exprs() {
            expr.any(&mut note);
        }
        match self {
            Self::Until(var, _) => read.push(*var),
            Self::Call(call) => read.extend(call.what.vars()),
            Self::Task(task) => read.extend(task.dropped.iter().map(|range| range.var)),
            _ => {}
        }
        read
    }
}

impl Calls {
    fn ranges(&self) -> Vec<&Range> {
        match self {
            Self::Mmap { over, file, .. } => over.iter().chain(file).collect(),
            Self::Mremap { of, over, .. } => std::iter::once(of).chain(over).collect(),
            Self::Memory { of, .. } | Self::Mbind { of, .. } => vec![of],
            Self::Write(of) | Self::Read(of) | Self::Check(of) | Self::Fadvise { of, .. } => {
                vec![of]
            }
            _ => vec![],
        }
    }
    fn exprs(&self) -> Vec<&Expr> {
        let own = match self {
            Self::Mmap { size, .. } | Self::Mremap { size, .. } | Self::Memfd { size, .. } => {
                Some(size)
            }
            Self::Mbind { node, .. } => Some(node),
            Self::Sleep(time) | Self::Compute(time) => Some(time),
            Self::OomScoreAdj(_, score) => Some(score),
            _ => None,
        };
        // The size of a mapping of memory or of a file is its own.
        let ranges = match self {
            Self::Mmap { over, file, .. } => over.iter().chain(file).map(|of| &of.from).collect(),
            Self::Mremap { of, over, .. } => {
                let mut all = vec![&of.from, &of.size];
                all.extend(over.iter().map(|of| &of.from));
                all
            }
            _ => self.ranges().into_iter().flat_map(|of| [&of.from, &of.size]).collect::<Vec<_>>(),
        };
        own.into_iter().chain(ranges).collect()
    }
    fn vars(&self) -> Vec<VarId> {
        let mut vars: Vec<VarId> = self.ranges().into_iter().map(|range| range.var).collect();
        match self {
            Self::Close(var) | Self::Wait(var) | Self::Join(var) | Self::Kill(var) => {
                vars.push(*var);
            }
            Self::PidfdOpen { of: var, .. } | Self::Mrelease(var) | Self::OomScoreAdj(var, _) => {
                vars.push(*var);
            }
            _ => {}
        }
        vars
    }
    pub(super) const fn to(&self) -> Option<VarId> {
        match self {
            Self::Mmap { to, .. } | Self::Mremap { to, .. } => *to,
            Self::Memfd { to, .. } | Self::PidfdOpen { to, .. } => *to,
            _ => None,
        }
    }
}

/// Calls `see` with each statement of a block, those of inner blocks and tasks included.
pub(super) fn walk<'a>(block: &'a Block, see: &mut impl FnMut(&'a What)) {
    for node in block {
        see(&node.what);
        node.what.blocks().into_iter().for_each(|inner| walk(inner, see));
        if let What::Task(task) = &node.what {
            walk(&task.body, see);
        }
    }
}

/// Whether a block has such a statement, at any depth.
pub(super) fn has(block: &Block, mut is: impl FnMut(&What) -> bool) -> bool {
    let mut found = false;
    walk(block, &mut |what| found |= is(what));
    found
}
