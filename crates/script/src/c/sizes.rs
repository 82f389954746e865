//! The sizes of memory: an expression wherever it has the value that the memory was mapped with,
//! and otherwise a variable next to the pointer.

use super::lower::Lowered;
use super::tree::{Block, Calls, Expr, Task, Var, VarId, What, walk};
use crate::ast::On;

/// Replaces the sizes of memory by the expressions that they were mapped with, where these still
/// have that value.
pub(super) fn resolve(script: &mut Lowered) {
    // The size of a mapping of a file is that of the file.
    let known = |script: &Lowered| -> Vec<Option<Expr>> {
        let all = script.vars.iter().enumerate();
        all.map(|(nth, var)| expression(var, VarId(nth), script)).collect()
    };
    let first = known(script);
    for size in script.vars.iter_mut().flat_map(|var| &mut var.sizes) {
        visit(size, &mut |size| {
            if let Expr::SizeOf(var) = size
                && let Some(known) = first[var.0].as_ref().filter(|known| known.is_constant())
            {
                *size = known.clone();
            }
        });
    }
    let known = known(script);
    let replace = &mut |expr: &mut Expr| {
        if let Expr::SizeOf(var) = expr
            && let Some(known) = &known[var.0]
        {
            *expr = known.clone();
        }
    };
    for group in &mut script.groups {
        change(&mut group.body, replace);
    }
}

/// Returns the expression of a variable's size.
fn expression(var: &Var, id: VarId, script: &Lowered) -> Option<Expr> {
    let mut sizes = var.sizes.iter().filter(|size| **size != Expr::SizeOf(id));
    let first = sizes.next()?;
    if sizes.any(|size| size != first) {
        return None;
    }
    if first.is_constant() {
        return Some(first.clone());
    }
    let mut own = |part: &Expr| matches!(part, Expr::Cpu | Expr::Ok);
    if !first.is_pure() || first.any(&mut own) {
        return None;
    }
    let mut setters = 0;
    script.groups.iter().for_each(|group| {
        walk(&group.body, &mut |what| setters += usize::from(what.sets() == Some(id)));
    });
    let holds = setters == 1 && script.groups.iter().any(|group| holds(&group.body, id, first));
    holds.then(|| first.clone())
}

/// Whether the variables of a size keep their values from the statement that sets `id` to the last
/// one that uses it, and all are in one block.
fn holds(block: &Block, id: VarId, size: &Expr) -> bool {
    let Some(first) = block.iter().position(|node| node.what.sets() == Some(id)) else {
        let inner = |what: &What| match what {
            What::Task(Task { body, .. }) => holds(body, id, size),
            what => what.blocks().into_iter().any(|inner| holds(inner, id, size)),
        };
        let mut using = block.iter().filter(|node| mentions(&node.what, id));
        return using.next().is_some_and(|node| inner(&node.what)) && using.next().is_none();
    };
    let last = block.iter().rposition(|node| mentions(&node.what, id)).unwrap_or(first);
    let mut vars = Vec::new();
    size.any(&mut |part| {
        if let Expr::Var(var) = part {
            vars.push(*var);
        }
        false
    });
    let changed = |node: &super::tree::Node| vars.iter().any(|var| changes(&node.what, *var));
    !block[first + 1..=last].iter().any(changed)
}

/// Whether a statement sets a variable, at any depth.
fn changes(what: &What, var: VarId) -> bool {
    let mut found = sets(what, var);
    let mut see = |inner: &What| found |= sets(inner, var);
    what.blocks().into_iter().for_each(|block| walk(block, &mut see));
    found
}
fn sets(what: &What, var: VarId) -> bool {
    what.sets() == Some(var) || matches!(what, What::Change(to, ..) if *to == var)
}

/// Whether a statement sets or reads a variable, at any depth.
pub(super) fn mentions(what: &What, var: VarId) -> bool {
    let own = |what: &What| sets(what, var) || what.reads().contains(&var);
    let mut found = own(what);
    let mut see = |inner: &What| found |= own(inner);
    what.blocks().into_iter().for_each(|block| walk(block, &mut see));
    if let What::Task(task) = what {
        walk(&task.body, &mut see);
    }
    found
}

/// Calls `with` with each value of a block, inner ones first.
fn change(block: &mut Block, with: &mut impl FnMut(&mut Expr)) {
    for node in block {
        match &mut node.what {
            What::Loop(body) | What::Until(_, body) => change(body, with),
            What::For(_, ends, body) => {
                ends.iter_mut().for_each(|end| visit(end, with));
                change(body, with);
            }
            What::While(value, body) => {
                visit(value, with);
                change(body, with);
            }
            What::If(branches, last) => {
                for (value, body) in branches {
                    visit(value, with);
                    change(body, with);
                }
                last.iter_mut().for_each(|body| change(body, with));
            }
            What::Switch(value, options) => {
                visit(value, with);
                options.iter_mut().for_each(|body| change(body, with));
            }
            What::Count(value) | What::Set(_, value) | What::Change(_, _, value) => {
                visit(value, with);
            }
            What::Call(call) => of_call(&mut call.what, with),
            What::Task(task) => {
                let amount = task.amount.iter_mut().map(|(amount, _)| amount);
                let on = task.on.iter_mut().filter_map(On::cpu_mut);
                amount.chain(on).chain(&mut task.priority).for_each(|e| visit(e, with));
                task.dropped.iter_mut().for_each(|range| visit(&mut range.size, with));
                change(&mut task.body, with);
            }
            What::Start | What::Break | What::Continue | What::Return => {}
        }
    }
}

fn of_call(call: &mut Calls, with: &mut impl FnMut(&mut Expr)) {
    let mut range = |range: &mut super::tree::Range| {
        visit(&mut range.from, with);
        visit(&mut range.size, with);
    };
    match call {
        Calls::Mmap { over, file, size, .. } => {
            over.iter_mut().chain(file).for_each(range);
            visit(size, with);
        }
        Calls::Mremap { of, size, over, .. } => {
            range(of);
            over.iter_mut().for_each(range);
            visit(size, with);
        }
        Calls::Memory { of, .. } | Calls::Fadvise { of, .. } => range(of),
        Calls::Write(of) | Calls::Read(of) | Calls::Check(of) => range(of),
        Calls::Mbind { of, node, .. } => {
            range(of);
            visit(node, with);
        }
        Calls::Sleep(value) | Calls::Compute(value) | Calls::OomScoreAdj(_, value) => {
            visit(value, with);
        }
        Calls::Memfd { size, .. } => visit(size, with),
        _ => {}
    }
}

/// Calls `with` with each part of a value, inner ones first.
pub(super) fn visit(expr: &mut Expr, with: &mut impl FnMut(&mut Expr)) {
    match expr {
        Expr::Unary(_, of) | Expr::PagesIn(of) => visit(of, with),
        Expr::Binary(_, sides) | Expr::Pick(_, sides) | Expr::Random(sides) => {
            sides.iter_mut().for_each(|side| visit(side, with));
        }
        Expr::Present(range) | Expr::Address(range) => {
            visit(&mut range.from, with);
            visit(&mut range.size, with);
        }
        _ => {}
    }
    with(expr);
}
