//! The effects of calls in a trace.

use super::CountsError;
use super::observed::{Effects, Works};
use super::program::{Others, Step};
use super::reading::{is_movable, is_table, mark, within};
use super::tracing::Event;
use mmscale_arch::Order;
use std::collections::BTreeMap;
use std::ops::Range;

/// Returns the effects of the calls of one kind, by the traces of CPU 0 and of CPU 1.
pub(super) fn effects(
    events: &[Event],
    of_cpu_1: &[Event],
    at: usize,
) -> Result<Effects, CountsError> {
    let mut all = Effects { freed_tables: freed_tables(events, at), ..Effects::default() };
    let beside = within(of_cpu_1, Step::Beside)?;
    for (pid, part, us) in within(events, Step::Call(at))? {
        // An interrupt on top of the call may do the same for another reason: the tick sends
        // interrupts to idle CPUs.
        let own = || part.iter().filter(|event| event.pid == pid && !event.in_interrupt);
        let count = |is: &dyn Fn(&Event) -> bool| own().filter(|event| is(event)).count() as u32;
        // Reason 3: the flush of this CPU's translations that is part of every flush.
        let flush = |event: &Event| event.name == "tlb_flush" && event.args().contains("(3)");
        let flushed = own().filter(|event| flush(event));
        all.flushes.push(count(&flush));
        let pages = flushed.map(|event| event.number("pages").unwrap_or(-1).max(0) as u32);
        all.flushed_pages.push(pages.sum());
        // Reason 4: the flush that other CPUs are asked for.
        let remote = |event: &Event| event.name == "tlb_flush" && event.args().contains("(4)");
        all.remote_flushes.push(count(&remote));
        all.interrupts.push(own().map(interrupted).sum());
        all.mmap_locks.push(acquisitions(own()));
        all.faults.push(count(&|event| event.name == "page_fault_user"));
        let allocated = |order: &dyn Fn(i64) -> bool| {
            let is = |event: &Event| {
                let is_order = event.number("order").is_some_and(order);
                event.name == "mm_page_alloc" && is_movable(event) && is_order
            };
            count(&is)
        };
        let huge = i64::from(Order::PAGEBLOCK.get());
        all.taken[0].push(allocated(&|order| order == 0));
        all.taken[1].push(allocated(&|order| order == huge));
        all.taken[2].push(allocated(&|order| order != 0 && order != huge));
        all.tables.push(count(&|event| event.name == "mm_page_alloc" && is_table(event)));
        let sent = events.iter().filter(|event| event.pid == pid && interrupted(event) > 0);
        let sent: Vec<u64> = sent.map(|event| event.time_us).collect();
        let is_elsewhere = beside.iter().all(|(pid, part, _)| {
            ran_another(part, *pid, &us) || is_switching(part, *pid, &us, &sent)
        });
        all.elsewhere.push(is_elsewhere);
        all.disturbed.push(part.iter().any(|event| event.pid != pid || event.in_interrupt));
    }
    Ok(all)
}

/// Whether another task than `pid` ran on a CPU at any of these times, by its switches. It ran
/// before the first one.
fn ran_another(switches: &[Event], pid: u32, us: &Range<u64>) -> bool {
    let (mut own, mut found) = (true, false);
    for event in switches.iter().filter(|event| event.name == "sched_switch") {
        // What ran until this switch.
        found |= !own && event.time_us >= us.start;
        if event.time_us > us.end {
            return found;
        }
        own = event.number("next_pid") == Some(i64::from(pid));
    }
    found || !own
}

/// Whether a CPU may not have completed its last switch to `pid`, by its switches: none of the
/// interrupts that were sent since then shows that it has. The kernel traces a switch before it
/// makes it, and an emulated CPU may stand still in between.
fn is_switching(switches: &[Event], pid: u32, us: &Range<u64>, sent: &[u64]) -> bool {
    let is_back = |event: &&Event| {
        event.name == "sched_switch" && event.number("next_pid") == Some(i64::from(pid))
    };
    let mut before = switches.iter().filter(|event| event.time_us <= us.end);
    let back = before.rfind(is_back).map(|event| event.time_us);
    back.is_some_and(|back| !sent.iter().any(|at| (back..us.start).contains(at)))
}

/// For each call of a kind, the page tables that were allocated for it, and before it since the
/// last call, and freed at any time later: a grace period after the munmap of what it used.
fn freed_tables(events: &[Event], at: usize) -> Vec<u32> {
    let (end, mut of_calls) = (mark("end", Step::Call(at)), Vec::new());
    let (mut fresh, mut owned) = (Vec::new(), BTreeMap::new());
    for event in events {
        let pfn = event.number("pfn");
        match (event.mark(), event.name.as_str()) {
            (Some(text), _) if text == end => {
                fresh.drain(..).for_each(|pfn| {
                    owned.insert(pfn, of_calls.len());
                });
                of_calls.push(0);
            }
            (Some(text), _) if text.starts_with("end") => fresh.clear(),
            (_, "mm_page_alloc") if is_table(event) => fresh.push(pfn),
            (_, "mm_page_free") => {
                if let Some(call) = owned.remove(&pfn) {
                    of_calls[call] += 1;
                }
            }
            _ => {}
        }
    }
    of_calls
}

/// Returns the works that each call queued to drain LRU batches.
pub(super) fn works(events: &[Event], others: Others) -> Result<Vec<Works>, CountsError> {
    let each = within(events, Step::Works(others))?.into_iter();
    Ok(each
        .map(|(pid, part, _)| {
            let mut works = Works::default();
            let mut is_own_queued = false;
            for event in part {
                match event.name.as_str() {
                    "workqueue_queue_work" if event.pid == pid => {
                        works.all += 1;
                        is_own_queued |= event.number("cpu") == Some(0);
                    }
                    "mm_lru_insertion" if event.pid != pid && is_own_queued => works.own = 1,
                    _ => {}
                }
            }
            works
        })
        .collect())
}

/// The CPUs that an event interrupts for a call of a function.
fn interrupted(event: &Event) -> u32 {
    if !event.args().contains("callback=generic_smp_call_function") {
        return 0;
    }
    match event.name.as_str() {
        "ipi_send_cpu" => 1,
        // A mask in hexadecimal digits.
        "ipi_send_cpumask" => event.arg("cpumask").map_or(0, |mask| {
            mask.chars().filter_map(|digit| digit.to_digit(16)).map(u32::count_ones).sum()
        }),
        _ => 0,
    }
}

/// Counts acquisitions of mmap_lock. A downgrade is traced as another acquisition, for reading,
/// without a release before it; it is none.
fn acquisitions<'a>(events: impl Iterator<Item = &'a Event>) -> u32 {
    let (mut acquired, mut held) = (0, false);
    for event in events {
        match event.name.as_str() {
            "mmap_lock_acquire_returned" if event.arg("success") == Some("true") => {
                acquired += u32::from(!held);
                held = true;
            }
            "mmap_lock_released" => held = false,
            _ => {}
        }
    }
    acquired
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::reading::trace;
    use crate::counts::tracing::parsed;

    #[test]
    fn an_interrupt_to_a_mask_counts_once_for_each_cpu_and_none_is_that_of_a_timer() {
        let line = |flags: &str, text: &str| format!("job-1 [000] {flags} 5.000001: {text}\n");
        let called = "callsite=x callback=generic_smp_call_function_single_interrupt";
        let lines = [
            line(".....", "tracing_mark_write: begin call 0"),
            line("d..1.", &format!("ipi_send_cpumask: cpumask=00000000,0000100e {called}")),
            line("dNh2.", &format!("ipi_send_cpu: cpu=3 {called}")),
            line("..s1.", &format!("ipi_send_cpu: cpu=3 {called}")),
            line(".....", "tracing_mark_write: end call 0"),
        ];
        let found = effects(&parsed(&lines.concat()), &beside(), 0).unwrap();
        assert_eq!(found.interrupts, [4]);
        assert_eq!(found.elsewhere, [false]);
    }

    /// A trace of CPU 1 on which only the program's thread runs.
    fn beside() -> Vec<Event> {
        trace(&[(2, "tracing_mark_write: begin second"), (2, "tracing_mark_write: end second")])
    }

    #[test]
    fn a_cpu_runs_another_task_between_two_switches() {
        let to =
            |pid| format!("sched_switch: prev_pid=1 prev_state=R ==> next_comm=a next_pid={pid}");
        let (away, back) = (to(9), to(2));
        let switches = trace(&[(2, &away), (9, &back), (2, &away), (9, &back)]);
        let from = switches[0].time_us;
        let is = |us: Range<u64>| ran_another(&switches, 2, &us);
        assert!(!is(from - 10..from - 5) && is(from - 1..from + 1) && is(from + 1..from + 1));
        assert!(!is(from + 4..from + 9), "back for good");
        assert!(ran_another(&switches[..3], 2, &(from + 8..from + 9)), "away for good");
        let arrives = |sent: &[u64]| !is_switching(&switches, 2, &(from + 8..from + 9), sent);
        assert!(!arrives(&[]) && !arrives(&[from + 2]), "no interrupt since it went back");
        assert!(arrives(&[from + 2, from + 6]));
        assert!(!is_switching(&switches[..1], 2, &(from + 8..from + 9), &[]), "it never went back");
    }

    #[test]
    fn page_tables_are_those_of_the_call_that_freed_them_later() {
        let table = |pfn| {
            format!("mm_page_alloc: pfn={pfn} order=0 gfp_flags=GFP_KERNEL_ACCOUNT|__GFP_ZERO")
        };
        let (first, second, third) = (table("0x1"), table("0x2"), table("0x3"));
        let events = trace(&[
            (1, &first),
            (1, "tracing_mark_write: begin call 0"),
            (1, &second),
            (1, "tracing_mark_write: end call 0"),
            (1, "mm_page_free: pfn=0x2 order=0"),
            (1, "tracing_mark_write: begin call 0"),
            (1, &third),
            (1, "tracing_mark_write: end call 0"),
            (1, "mm_page_free: pfn=0x1 order=0"),
            (1, "mm_page_free: pfn=0x3 order=0"),
            (1, "mm_page_free: pfn=0x4 order=0"),
        ]);
        let found = effects(&events, &beside(), 0).unwrap();
        assert_eq!((found.tables, found.freed_tables), (vec![1, 1], vec![2, 1]));
    }

    #[test]
    fn works_are_those_of_the_calling_thread() {
        let queued = "workqueue_queue_work: work struct=1 function=lru_add_drain_per_cpu cpu=1";
        let events = trace(&[
            (1, queued),
            (1, "tracing_mark_write: begin works One"),
            (1, queued),
            (2, queued),
            (1, "tracing_mark_write: end works One"),
        ]);
        assert_eq!(works(&events, Others::One).unwrap(), [Works { all: 1, own: 0 }]);
    }

    #[test]
    fn a_work_for_the_calling_cpu_counts_if_it_found_folios() {
        let queued = |cpu| {
            format!(
                "workqueue_queue_work: work struct=1 function=lru_add_drain_per_cpu req_cpu={cpu} \
                 cpu={cpu}"
            )
        };
        let (own, other) = (queued(0), queued(1));
        let begin = (1, "tracing_mark_write: begin works All");
        let end = (1, "tracing_mark_write: end works All");
        let added = (7, "mm_lru_insertion: pfn=0x1 lru=1");
        let of = |events: &[(u32, &str)]| works(&trace(events), Others::All).unwrap()[0];
        let found = of(&[begin, (1, &own), (1, &other), added, end]);
        assert_eq!(found, Works { all: 2, own: 1 });
        assert_eq!(of(&[begin, (1, &own), (1, &other), end]).own, 0, "it found none");
        assert_eq!(of(&[begin, (1, &other), added, end]).own, 0, "it is for another CPU");
    }

    #[test]
    fn a_downgrade_of_mmap_lock_is_no_acquisition() {
        let acquired = |write, success| {
            format!("mmap_lock_acquire_returned: mm=1 write={write} success={success}")
        };
        let lines = [
            "tracing_mark_write: begin call 0".to_owned(),
            acquired("true", "true"),
            acquired("false", "true"),
            "mmap_lock_released: mm=1 write=false".to_owned(),
            acquired("false", "false"),
            acquired("false", "true"),
            "tlb_flush: pages:-1 reason:remote IPI send (4)".to_owned(),
            "tlb_flush: pages:-1 reason:local MM shootdown (3)".to_owned(),
            "ipi_send_cpu: cpu=1 callsite=x callback=generic_smp_call_function_single_interrupt"
                .to_owned(),
            "ipi_send_cpu: cpu=1 callsite=wakeup_preempt callback=0x0".to_owned(),
            "tracing_mark_write: end call 0".to_owned(),
        ];
        let lines: Vec<(u32, &str)> = lines.iter().map(|line| (1, line.as_str())).collect();
        let found = effects(&trace(&lines), &beside(), 0).unwrap();
        assert_eq!(found.mmap_locks, [2]);
        assert_eq!((found.flushes, found.flushed_pages), (vec![1], vec![0]));
        assert_eq!((found.remote_flushes, found.interrupts), (vec![1], vec![1]));
    }
}
