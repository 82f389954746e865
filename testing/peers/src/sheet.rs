//! The tables and their programs.

use crate::phase::{FreeOrder, Phase, PoolState, Program};

/// The columns of one table.
pub struct Sheet {
    /// Common properties of all columns.
    pub title: String,
    /// The columns: a name and what is measured.
    pub columns: Vec<(String, Phase)>,
}

/// Orders that are measured.
const ORDERS: u8 = 10;

const ALL: [Phase; 8] = [
    Phase::new(Program::Pair, 1),
    Phase::new(Program::Pair, 2),
    Phase::new(Program::Bulk, 1),
    Phase::new(Program::Bulk, 2),
    Phase::new(Program::Pipe, 2),
    Phase::new(Program::Cross, 2),
    Phase::new(Program::Mix, 1),
    Phase::new(Program::Mix, 2),
];

/// Returns the words for a pool.
const fn words(pool: PoolState) -> &'static str {
    match pool {
        PoolState::Fresh => "a fresh pool",
        PoolState::Fragmented => "a fragmented pool",
    }
}

/// Returns the words for an order of frees, unless it is the default one.
fn frees(free: FreeOrder) -> String {
    match free {
        FreeOrder::Same => String::new(),
        other => format!(", frees in {} order", other.name()),
    }
}

impl Sheet {
    /// All programs; for another order of frees, those that have an order. `Mix` makes its own
    /// fragmented pool, and is measured where the pool is fresh.
    pub fn programs(pool: PoolState, free: FreeOrder) -> Self {
        let chosen = ALL.into_iter().filter(|phase| {
            let ordered = matches!(phase.program, Program::Bulk | Program::Cross);
            (pool == PoolState::Fresh || phase.program != Program::Mix)
                && (free == FreeOrder::Same || ordered)
        });
        let columns = chosen.map(|phase| (phase.name(), Phase { pool, free, ..phase })).collect();
        Self { title: format!("{}{}", words(pool), frees(free)), columns }
    }
    /// One program, by the order of its blocks.
    pub fn orders(program: Program, threads: usize, pool: PoolState, free: FreeOrder) -> Self {
        let of = |order: u8| Phase { order, pool, free, ..Phase::new(program, threads) };
        let columns = (0..ORDERS).map(|order| (order.to_string(), of(order))).collect();
        let name = Phase::new(program, threads).name();
        Self { title: format!("{name} by order, {}{}", words(pool), frees(free)), columns }
    }
    /// [`Sheet::orders`] of the programs that have an order, on one thread and on two.
    pub fn all_orders(pool: PoolState, free: FreeOrder) -> Vec<Self> {
        let programs =
            [(Program::Pair, 1), (Program::Pair, 2), (Program::Bulk, 1), (Program::Bulk, 2)];
        programs.map(|(program, threads)| Self::orders(program, threads, pool, free)).into()
    }
}
