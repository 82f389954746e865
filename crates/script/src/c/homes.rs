//! Where variables are declared: in the innermost block in which each round of a loop sets them
//! first.

use super::sizes::mentions;
use super::tree::{Block, Kind, Task, VarId, What};

/// The blocks of a statement in the same function, and whether they are repeated. A fork has a copy
/// of each variable, so that no round of a loop around it sees what it set.
fn inner(what: &What) -> Vec<(&Block, Repeat)> {
    match what {
        What::Loop(body) | What::Until(_, body) | What::For(_, _, body) | What::While(_, body) => {
            vec![(body, Repeat::Yes)]
        }
        What::Task(Task { kind: Kind::Fork | Kind::Process, body, .. }) => {
            vec![(body, Repeat::Apart)]
        }
        what => what.blocks().into_iter().map(|body| (body, Repeat::No)).collect(),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    No,
    Yes,
    Apart,
}

/// Whether a statement itself, without its blocks in the same function, has a variable.
fn own(what: &What, var: VarId) -> bool {
    let sets = what.sets() == Some(var) || matches!(what, What::Change(to, ..) if *to == var);
    let thread = match what {
        What::Task(task) if matches!(task.kind, Kind::Thread | Kind::Team) => mentions(what, var),
        _ => false,
    };
    sets || thread || what.reads().contains(&var)
}

/// Whether the first statement of a block that has the variable sets it, always and in one step.
pub(super) fn is_set_first(block: &Block, var: VarId) -> bool {
    let first = block.iter().find(|node| mentions(&node.what, var));
    first.is_some_and(|node| {
        let is_plain = matches!(node.what, What::Set(..) | What::Call(_) | What::Task(_));
        let reads = node.what.reads().contains(&var);
        is_plain && node.what.sets() == Some(var) && !reads && !node.what.is_attempt()
    })
}

/// Whether a variable is declared in a block, of which it is known that it is in no block around.
/// Otherwise it is declared in a block within.
pub(super) fn is_here(block: &Block, var: VarId) -> bool {
    let (mut at, mut crossed) = (block, false);
    let mut best = block;
    loop {
        let mut having = at.iter().filter(|node| mentions(&node.what, var));
        let (Some(node), None) = (having.next(), having.next()) else { break };
        if own(&node.what, var) {
            break;
        }
        let blocks = inner(&node.what);
        let mut having = blocks.into_iter().filter(|(block, _)| has(block, var));
        let (Some((next, repeat)), None) = (having.next(), having.next()) else { break };
        crossed = match repeat {
            Repeat::Yes => true,
            Repeat::Apart => false,
            Repeat::No => crossed,
        };
        at = next;
        if !crossed || is_set_first(at, var) {
            best = at;
        }
    }
    std::ptr::eq(best, block)
}

fn has(block: &Block, var: VarId) -> bool {
    block.iter().any(|node| mentions(&node.what, var))
}

/// Whether a variable is the counter of loops, and nothing outside of them has it.
pub(super) fn is_counter(block: &Block, var: VarId) -> bool {
    block.iter().all(|node| match &node.what {
        What::For(counter, ..) if *counter == var => !node.what.reads().contains(&var),
        what if own(what, var) => false,
        what => inner(what).into_iter().all(|(block, _)| is_counter(block, var)),
    })
}
