//! The effects of calls in a trace.

use super::CountsError;
use super::observed::Effects;
use super::program::Step;
use super::reading::within;
use super::tracing::Event;

/// Returns the effects of the calls of one kind.
pub(super) fn effects(events: &[Event], at: usize) -> Result<Effects, CountsError> {
    let mut all = Effects::default();
    for (pid, part, _) in within(events, Step::Call(at))? {
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
        all.disturbed.push(part.iter().any(|event| event.pid != pid || event.in_interrupt));
    }
    Ok(all)
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
        assert_eq!(effects(&parsed(&lines.concat()), 0).unwrap().interrupts, [4]);
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
        let found = effects(&trace(&lines), 0).unwrap();
        assert_eq!(found.mmap_locks, [2]);
        assert_eq!((found.flushes, found.flushed_pages), (vec![1], vec![0]));
        assert_eq!((found.remote_flushes, found.interrupts), (vec![1], vec![1]));
    }
}
