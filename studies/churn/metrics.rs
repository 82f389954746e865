//! Metrics of the study, and the meter of tracepoints about folio batches.

use super::{Beside, Churn, Plan, Tally};
use mmscale_arch::{CpuId, LruEvent, Trace, TraceGroup};
use mmscale_document::Target;
use mmscale_harness::{
    Env, Level, Measured, Meter, Metric, Missing, Seen, Waits, Window, higher, lower, metric, value,
};
use mmscale_mm::lru::BatchKind;

/// Returns the number of measured ops.
fn ops(seen: &Seen<'_, Churn>) -> f64 {
    seen.tally.ended as f64
}
fn cpu_ns_per_op(seen: &Seen<'_, Churn>) -> Result<f64, Missing> {
    let Tally { cpu_user_ns, cpu_system_ns, begun, .. } = seen.tally;
    match seen.on() {
        Target::Live => Ok((cpu_user_ns + cpu_system_ns) as f64 / begun as f64),
        Target::Sim | Target::Threads => Ok(seen.busy_ns()? / ops(seen)),
    }
}
fn usr_ns_per_op(seen: &Seen<'_, Churn>) -> f64 {
    let Tally { cpu_user_ns, user_ns, begun, .. } = seen.tally;
    (if seen.on() == Target::Live { cpu_user_ns } else { user_ns }) as f64 / begun as f64
}
/// Returns the number of ops during which locks were counted.
fn lock_ops(seen: &Seen<'_, Churn>) -> f64 {
    if seen.on() == Target::Sim { ops(seen) } else { seen.tally.begun as f64 }
}
fn lruvec(seen: &Seen<'_, Churn>) -> Result<Waits, Missing> {
    Ok(seen.locks()?.waits("lruvec", &[]))
}
/// Returns the CPU time per op on one CPU. Missing if the computer was too busy to run any op.
fn alone_ns(seen: &Seen<'_, Churn>) -> Result<f64, Missing> {
    let alone_ns = cpu_ns_per_op(seen.second.ok_or(Missing::Nothing)?)?;
    if alone_ns.is_finite() && alone_ns > 0.0 { Ok(alone_ns) } else { Err(Missing::Nothing) }
}
/// Returns the batches added to LRU lists, and the folios in them.
fn batches(seen: &Seen<'_, Churn>) -> Result<[f64; 2], Missing> {
    match seen.live() {
        Ok(live) => {
            let seen = live.seen.as_ref().ok_or(Missing::UNWATCHED)?;
            Ok([seen.lru_batches as f64, seen.lru_folios as f64])
        }
        Err(_) => Ok([seen.sum(|cpu| cpu.batches)?, seen.sum(|cpu| cpu.folios)?]),
    }
}
fn level(seen: &Seen<'_, Churn>, of: fn(&Batches) -> &Level) -> Measured {
    value(Level::max(seen.meters()?.iter().map(of)).max(0) as u64)
}

/// Every metric, in the order in which tables show them.
pub(super) const METRICS: &[Metric<Churn>] = &[
    higher(
        "ops_per_s",
        "1/s",
        "ops per second of all processes that ended in the window (op: map, advise, touch, unmap)",
        |seen| value(seen.per_s(ops(seen))),
    ),
    lower(
        "cpu_ns_per_op",
        "ns",
        "non-idle CPU time per op, including that of additional processes (`beside`)",
        |seen| value(cpu_ns_per_op(seen)?),
    ),
    lower("op_ns_mean", "ns", "mean time from the start to the end of an op", |seen| {
        value(seen.tally.took_ns as f64 / ops(seen))
    }),
    metric(
        "idle_share",
        "1",
        "share of the CPU time of all CPUs in which they were idle",
        |seen| value(1.0 - seen.busy_ns()? / seen.cpu_time_ns()),
    ),
    lower("usr_ns_per_op", "ns", "CPU time in user mode per op", |seen| value(usr_ns_per_op(seen))),
    lower(
        "sys_ns_per_op",
        "ns",
        "CPU time in the kernel per op (cpu_ns_per_op - usr_ns_per_op)",
        |seen| value(cpu_ns_per_op(seen)? - usr_ns_per_op(seen)),
    ),
    lower(
        "cpu_ns_per_op_alone",
        "ns",
        "cpu_ns_per_op of a second run on one CPU; none with `beside=mixed`",
        |seen| value(alone_ns(seen)?),
    ),
    lower("amplification", "1", "cpu_ns_per_op / cpu_ns_per_op_alone", |seen| {
        value(cpu_ns_per_op(seen)? / alone_ns(seen)?)
    }),
    lower("lruvec_acquisitions_per_op", "1", "acquisitions of lruvec->lru_lock per op", |seen| {
        let taken: u64 = seen.held_locks()?.rows("lruvec", &[]).map(|row| row.acquisitions).sum();
        value(taken as f64 / lock_ops(seen))
    }),
    lower(
        "lruvec_waits_per_op",
        "1",
        "contended acquisitions of lruvec->lru_lock per op (live)",
        |seen| {
            seen.live()?;
            value(lruvec(seen)?.count as f64 / seen.tally.begun as f64)
        },
    ),
    lower(
        "lruvec_wait_share",
        "1",
        "share of the CPU time of all CPUs spent waiting for lruvec->lru_lock",
        |seen| {
            let counted =
                if seen.on() == Target::Threads { ops(seen) / lock_ops(seen) } else { 1.0 };
            let spun_ns = seen.locks()?.spun_ns(Some("lruvec"));
            value(spun_ns * counted / seen.cpu_time_ns())
        },
    ),
    lower("lruvec_wait_max_ns", "ns", "longest single wait for lruvec->lru_lock", |seen| {
        value(lruvec(seen)?.max_ns)
    }),
    metric(
        "lru_batch_size_mean",
        "1",
        "mean number of folios in a batch that is added to LRU lists",
        |seen| {
            let [batches, folios] = batches(seen)?;
            value(folios / batches)
        },
    ),
    metric(
        "lru_batches_per_op",
        "1",
        "batches added to LRU lists per op; each takes lruvec->lru_lock once (live)",
        |seen| {
            seen.live()?;
            value(batches(seen)?[0] / seen.tally.begun as f64)
        },
    ),
    metric(
        "lru_batch_dead_mean",
        "1",
        "mean number of folios in an added batch whose only reference is the batch",
        |seen| value(seen.sum(|cpu| cpu.dead_folios)? / seen.sum(|cpu| cpu.batches)?),
    ),
    lower(
        "folios_pinned_in_batches_max",
        "folios",
        "maximum number of folios held by batches on all CPUs, sampled every 0.1 ms",
        |seen| level(seen, |cpu| &cpu.pinned),
    ),
    lower(
        "memory_charged_after_unmap_max_pages",
        "pages",
        "maximum of unmapped pages still held by batches of new folios, sampled every 0.1 ms",
        |seen| level(seen, |cpu| &cpu.dead),
    ),
    lower(
        "op_failures",
        "1",
        "failed ops, mostly for lack of memory; not included in the number of ops",
        |seen| value(seen.tally.failures),
    ),
    metric(
        "meddler_rounds",
        "1",
        "rounds of additional processes: lock, migrate, age, reclaim, use again (`beside=mixed`)",
        |seen| match seen.plan.beside {
            Beside::None => Err(Missing::Nothing),
            Beside::Mixed => value(seen.tally.rounds),
        },
    ),
];

/// The events of one CPU about batches of folios that are added to LRU lists.
#[derive(Debug, Default)]
pub struct Batches {
    window: Window,
    batches: u64,
    folios: u64,
    dead_folios: u64,
    pinned: Level,
    dead: Level,
}

impl Meter<Churn> for Batches {
    fn of_cpus(_: &Env<Churn>, plan: &Plan) -> impl FnMut(CpuId) -> Self {
        let window = plan.window;
        move |_| Self { window, ..Self::default() }
    }
    fn hears(&self, group: TraceGroup) -> bool {
        group == TraceGroup::Lru
    }
    fn event(&mut self, now_ns: u64, event: &Trace) {
        let Trace::Lru(event) = *event else { return };
        match event {
            LruEvent::Move { kind, folios, dead, .. }
                if kind == BatchKind::Add as u8 && self.window.counts(now_ns) =>
            {
                self.batches += 1;
                self.folios += u64::from(folios);
                self.dead_folios += u64::from(dead);
            }
            LruEvent::Pinned { folios } => self.pinned.change(now_ns, folios.into()),
            LruEvent::Dead { pages } => self.dead.change(now_ns, pages.into()),
            _ => {}
        }
    }
    /// Extends both levels, which no longer change, to the end of the run.
    fn close(meters: &mut [Self], end_ns: u64) {
        for meter in meters {
            meter.pinned.pass(end_ns);
            meter.dead.pass(end_ns);
        }
    }
}
