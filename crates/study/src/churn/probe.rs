//! What one CPU's tracepoints say about batches and idle time. As with every probe, the machine's
//! figures are sums and maxima over CPUs.

use crate::meters::{Idle, Level};
use mmscale_arch::{LruEvent, Probe, Trace, TraceGroup};
use std::any::Any;

/// The kind of batch that adds folios.
const ADD: u8 = mmscale_mm::lru::BatchKind::Add as u8;

/// One CPU's view of a run.
#[derive(Debug)]
pub(crate) struct ChurnProbe {
    /// The time that counts.
    window: (u64, u64),
    pub(crate) add_batches: u64,
    pub(crate) add_folios: u64,
    pub(crate) add_dead: u64,
    pub(crate) pinned: Level,
    pub(crate) dead: Level,
    pub(crate) idle: Idle,
}

impl ChurnProbe {
    pub(crate) fn new(window: (u64, u64)) -> Self {
        Self {
            window,
            add_batches: 0,
            add_folios: 0,
            add_dead: 0,
            pinned: Level::default(),
            dead: Level::default(),
            idle: Idle::within(window),
        }
    }
    /// Closes what is open at the end of a run; both levels stay as they are until then.
    pub(crate) fn finish(&mut self, end_ns: u64) {
        self.idle.finish(end_ns);
        self.pinned.pass(end_ns);
        self.dead.pass(end_ns);
    }
}

impl Probe for ChurnProbe {
    fn hears(&self, group: TraceGroup) -> bool {
        matches!(group, TraceGroup::Lru | TraceGroup::Idle)
    }
    fn event(&mut self, now_ns: u64, event: &Trace) {
        match *event {
            Trace::Lru(LruEvent::Move { kind, folios, dead, .. })
                if kind == ADD && (self.window.0..self.window.1).contains(&now_ns) =>
            {
                self.add_batches += 1;
                self.add_folios += u64::from(folios);
                self.add_dead += u64::from(dead);
            }
            Trace::Lru(LruEvent::Pinned { folios }) => self.pinned.change(now_ns, folios.into()),
            Trace::Lru(LruEvent::Dead { pages }) => self.dead.change(now_ns, pages.into()),
            _ => self.idle.event(now_ns, event),
        }
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(events: &[(u64, Trace)]) -> ChurnProbe {
        let mut probe = ChurnProbe::new((1_000, 2_000));
        events.iter().for_each(|(now_ns, event)| probe.event(*now_ns, event));
        probe.finish(3_000);
        probe
    }

    #[test]
    fn batches_count_within_the_window_and_only_those_that_add() {
        let batch =
            |kind, folios| Trace::Lru(LruEvent::Move { kind, folios, dead: folios - 1, freed: 0 });
        let seen = probe(&[
            (999, batch(ADD, 5)),
            (1_000, batch(ADD, 31)),
            (1_500, batch(ADD + 1, 7)),
            (2_000, batch(ADD, 3)),
        ]);
        assert_eq!((seen.add_batches, seen.add_folios, seen.add_dead), (1, 31, 30));
    }
}
