//! Scratch.
use mmscale_peers::hand::Trusting;
use mmscale_peers::peer::{Blockmap, BuddySlab, Magazines, Ours};
use mmscale_peers::phase::{FreeOrder, Phase, PoolState, Program};
use std::sync::Arc;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let program = match &*a[2] {
        "pair" => Program::Pair,
        "bulk" => Program::Bulk,
        "pipe" => Program::Pipe,
        "cross" => Program::Cross,
        _ => Program::Mix,
    };
    let mut phase = Phase::new(program, a[3].parse().unwrap());
    phase.order = a[4].parse().unwrap();
    let ops: usize = a[5].parse().unwrap();
    phase.free = match a.get(6).map(|s| &**s) {
        Some("random") => FreeOrder::Random,
        Some("reverse") => FreeOrder::Reverse,
        _ => FreeOrder::Same,
    };
    if a.get(7).is_some() {
        phase.pool = PoolState::Fragmented
    }
    let t = Arc::new(Trusting);
    let n = mmscale_peers::FRAMES;
    let s = match &*a[1] {
        "bm" => phase.measure_once::<Ours<Blockmap>, _>(n, ops, &t),
        "slab" => phase.measure_once::<BuddySlab, _>(n, ops, &t),
        "mag" => phase.measure_once::<Magazines, _>(n, ops, &t),
        _ => None,
    };
    println!("{s:?}");
}
