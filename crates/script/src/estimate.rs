//! How many processes and pages a run needs at most, as far as the text tells.
//!
//! A body counts once, times the rounds of loops with a known number. Memory that accumulates in a
//! loop without a known number is not included.

use crate::ast::{
    Amount, Binary, Block, Call, Expr, ExprKind, Given, MemoryGroupItem, Statement, Task, TaskKind,
    Tree, Unary, What,
};
use crate::run::binary;
use mmscale_system::PAGE_BYTES;

/// The most that a run needs at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ScriptNeeds {
    /// Processes.
    pub processes: u64,
    /// Processes and threads.
    pub tasks: u64,
    /// Processes at the top of the script.
    pub groups: u64,
    /// Processes at the top, and threads of theirs that run at the same time.
    pub standing: u64,
    /// Pages of all processes.
    pub pages: u64,
    /// Pages that processes map before they are ready to start.
    pub prepared_pages: u64,
    /// Pages of the swap area.
    pub swap_pages: u64,
}

impl ScriptNeeds {
    fn add(&mut self, other: Self, times: u64) {
        let sum = |a: u64, b: u64| a.saturating_add(b.saturating_mul(times));
        self.processes = sum(self.processes, other.processes);
        self.tasks = sum(self.tasks, other.tasks);
        self.groups = sum(self.groups, other.groups);
        self.standing = sum(self.standing, other.standing);
        self.pages = sum(self.pages, other.pages);
        self.prepared_pages = sum(self.prepared_pages, other.prepared_pages);
    }
}

/// Whether the number of processes or threads is proportional to that of CPUs, in each group that
/// has any.
pub(crate) fn is_per_cpu(tree: &Tree, params: &[i64]) -> bool {
    let team = |statement: &Statement| match &statement.what {
        What::Threads(amount, place, _) => amount.per_cpu && place.on.is_none(),
        _ => false,
    };
    let names = tree.params.iter().map(|param| param.name.text.as_str());
    let known = names.zip(params.iter().copied()).chain([("cpus", 1)]).collect();
    let estimate = Estimate { tree, known, random: Random::End };
    tree.groups.iter().all(|group| match &group.amount {
        Some(amount) if estimate.times(amount) == 0 => true,
        Some(amount) if amount.per_cpu => group.place.on.is_none(),
        _ => group.body.iter().any(team),
    })
}

pub(crate) fn needs(tree: &Tree, params: &[i64], cpus: usize) -> ScriptNeeds {
    let names = tree.params.iter().map(|param| param.name.text.as_str());
    let known = names.zip(params.iter().copied()).chain([("cpus", cpus as i64)]).collect();
    let estimate = Estimate { tree, known, random: Random::End };
    let mut needs = ScriptNeeds::default();
    for file in &tree.files {
        needs.pages = needs.pages.saturating_add(estimate.pages(&file.size));
    }
    needs.swap_pages = tree.swap.as_ref().map_or(0, |swap| estimate.pages(&swap.size));
    for group in &tree.groups {
        let times = group.amount.as_ref().map_or(1, |amount| estimate.times(amount));
        let mut one = ScriptNeeds { processes: 1, tasks: 1, ..ScriptNeeds::default() };
        (one.groups, one.standing) = (1, 1);
        let mut preparing = true;
        one.add(estimate.block(&group.body, &mut preparing), 1);
        needs.add(one, times);
    }
    needs
}

/// Returns the size of compressed pages in percent of a page; `None`: sizes differ.
pub(crate) fn compressed_percent(tree: &Tree, params: &[i64], cpus: usize) -> Option<u64> {
    let names = tree.params.iter().map(|param| param.name.text.as_str());
    let known = names.zip(params.iter().copied()).chain([("cpus", cpus as i64)]).collect();
    let estimate = Estimate { tree, known, random: Random::End };
    let percent = tree.swap.as_ref()?.percent.as_ref()?;
    // A number below 0 is not possible, and is refused as one that is too large.
    Some(estimate.natural(percent).unwrap_or(u64::MAX)).filter(|percent| *percent > 0)
}

/// The equal memory groups of a `group` of a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryGroups {
    /// Their number.
    pub count: u64,
    /// Levels below the root.
    pub depth: u64,
    /// The limit of each; `None`: no limit.
    pub limit_pages: Option<u64>,
}

pub(crate) fn memory_groups(tree: &Tree, params: &[i64], cpus: usize) -> Vec<MemoryGroups> {
    let names = tree.params.iter().map(|param| param.name.text.as_str());
    let known = names.zip(params.iter().copied()).chain([("cpus", cpus as i64)]).collect();
    let estimate = Estimate { tree, known, random: Random::End };
    let of = |item: &MemoryGroupItem| {
        let number = |expr: &Option<Expr>| {
            expr.as_ref().map_or(1, |expr| estimate.natural(expr).unwrap_or(0))
        };
        let limit_pages = item.limit.as_ref().map(|limit| estimate.pages(limit));
        MemoryGroups { count: number(&item.number), depth: number(&item.depth), limit_pages }
    };
    tree.memory_groups.iter().map(of).collect()
}

/// Whether an expression consists of numbers, parameters and `cpus`.
pub(crate) fn is_constant(tree: &Tree, expr: &Expr) -> bool {
    let names = tree.params.iter().map(|param| (param.name.text.as_str(), param.default.value));
    let known = names.chain([("cpus", 1)]).collect();
    Estimate { tree, known, random: Random::Unknown }.value(expr).is_some()
}

/// The value of a random number in an estimate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Random {
    /// The end of its range.
    End,
    Unknown,
}

struct Estimate<'a> {
    tree: &'a Tree,
    known: Vec<(&'a str, i64)>,
    random: Random,
}

impl Estimate<'_> {
    /// Returns the value of an expression that consists of numbers and parameters.
    fn value(&self, expr: &Expr) -> Option<i64> {
        match &expr.kind {
            ExprKind::Literal(literal) => Some(literal.value),
            ExprKind::Name(name) => {
                self.known.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
            }
            ExprKind::Unary(Unary::Minus, of) => self.value(of)?.checked_neg(),
            ExprKind::Binary(how, sides) => self.binary(*how, sides),
            ExprKind::Call(Call { name, args }) if name.text == "min" || name.text == "max" => {
                let [a, b] = &args[..] else { return None };
                let (a, b) = (self.value(a)?, self.value(b)?);
                Some(if name.text == "min" { a.min(b) } else { a.max(b) })
            }
            ExprKind::Call(Call { name, args })
                if name.text == "rand" && self.random == Random::End =>
            {
                self.value(args.last()?)
            }
            _ => None,
        }
    }
    fn binary(&self, how: Binary, sides: &[Expr; 2]) -> Option<i64> {
        binary(how, self.value(&sides[0])?, self.value(&sides[1])?).ok()
    }
    fn natural(&self, expr: &Expr) -> Option<u64> {
        self.value(expr).and_then(|value| u64::try_from(value).ok())
    }
    /// Returns the pages of a size; 0 if it is not known.
    fn pages(&self, size: &Expr) -> u64 {
        self.natural(size).unwrap_or(0).div_ceil(PAGE_BYTES)
    }
    fn times(&self, amount: &Amount) -> u64 {
        let number = amount.number.as_ref().map_or(Some(1), |number| self.natural(number));
        let per_cpu = self.known.last().map_or(1, |(_, cpus)| *cpus as u64);
        number.unwrap_or(1).saturating_mul(if amount.per_cpu { per_cpu } else { 1 })
    }

    /// Estimates a block. `preparing` becomes false at a `start`.
    fn block(&self, block: &Block, preparing: &mut bool) -> ScriptNeeds {
        let mut needs = ScriptNeeds::default();
        for statement in block {
            let of = self.statement(&statement.what, &needs, preparing);
            needs.add(of, 1);
        }
        needs
    }

    fn statement(&self, what: &What, so_far: &ScriptNeeds, preparing: &mut bool) -> ScriptNeeds {
        let mut needs = ScriptNeeds::default();
        match what {
            What::Start => *preparing = false,
            What::Loop(rounds, body) => {
                let rounds = rounds.as_ref().and_then(|rounds| self.rounds(rounds));
                needs.add(self.block(body, preparing), rounds.unwrap_or(1));
            }
            What::For(_, [from, to], body) => {
                let ends = self.value(from).zip(self.value(to));
                let rounds = ends.and_then(|(from, to)| u64::try_from(to.checked_sub(from)?).ok());
                needs.add(self.block(body, preparing), rounds.unwrap_or(1));
            }
            What::While(_, body) | What::Time(body) => needs.add(self.block(body, preparing), 1),
            What::If(branches, last) => {
                let all = branches.iter().map(|(_, body)| body).chain(last);
                all.for_each(|body| needs.add(self.block(body, preparing), 1));
            }
            What::Choose(options) => {
                options.iter().for_each(|(_, body)| needs.add(self.block(body, preparing), 1));
            }
            What::Threads(amount, _, body) => {
                let mut one = ScriptNeeds { tasks: 1, standing: 1, ..ScriptNeeds::default() };
                one.add(self.block(body, preparing), 1);
                needs.add(one, self.times(amount));
                // The task that starts them waits.
                needs.standing = needs.standing.saturating_sub(1);
            }
            What::Task(task) | What::Assign(_, _, Given::Task(task)) => {
                needs.add(self.task(task, so_far, preparing), 1);
            }
            What::Try(inner) => return self.statement(&inner.what, so_far, preparing),
            What::Assign(_, _, Given::Expr(expr)) => {
                if let ExprKind::Call(call) = &expr.kind {
                    self.call(call, &mut needs, *preparing);
                }
            }
            What::Act(call) => match self.tree.program(call) {
                Some(body) => needs.add(self.block(body, preparing), 1),
                None => self.call(call, &mut needs, *preparing),
            },
            What::Count(_) | What::Break | What::Continue | What::Return => {}
        }
        needs
    }

    /// Returns the rounds of a loop with a number of them; `loop TIME` has none.
    fn rounds(&self, limit: &Expr) -> Option<u64> {
        let is_time = matches!(&limit.kind, ExprKind::Literal(literal)
            if literal.unit == crate::ast::Unit::Time);
        if is_time { None } else { self.natural(limit).filter(|rounds| *rounds < 1 << 20) }
    }

    fn task(&self, task: &Task, so_far: &ScriptNeeds, preparing: &mut bool) -> ScriptNeeds {
        let mut needs = self.block(&task.body, preparing);
        needs.tasks = needs.tasks.saturating_add(1);
        match task.kind {
            TaskKind::Thread => needs.standing = needs.standing.saturating_add(1),
            TaskKind::Fork | TaskKind::Process => {
                needs.processes = needs.processes.saturating_add(1);
                needs.standing = 0;
            }
        }
        if task.kind == TaskKind::Fork {
            // A fork may write to all pages of its parent.
            needs.pages = needs.pages.saturating_add(so_far.pages);
        }
        needs
    }

    fn call(&self, call: &Call, needs: &mut ScriptNeeds, preparing: bool) {
        let pages = match (call.name.text.as_str(), &call.args[..]) {
            ("mmap" | "memfd_create", [size, ..]) => self.pages(size),
            ("mremap", [_, size, ..]) => self.pages(size),
            _ => 0,
        };
        needs.pages = needs.pages.saturating_add(pages);
        if preparing {
            needs.prepared_pages = needs.prepared_pages.saturating_add(pages);
        }
    }
}
