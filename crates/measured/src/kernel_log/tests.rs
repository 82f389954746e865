//! Reports of lockups in the forms of several versions and architectures.

use super::*;
use crate::text::lines;

fn of(text: &str) -> Vec<(String, String)> {
    let found = parse(&lines(text), 0).expect("a report");
    let one = |stack: Stack| (stack.who.unwrap_or_default(), stack.path.join(" "));
    found.stacks.into_iter().map(one).collect()
}

fn one(who: &str, path: &str) -> Vec<(String, String)> {
    vec![(who.to_owned(), path.to_owned())]
}

const LOCKUP: &str = "\
[  1.018466] watchdog: BUG: soft lockup - CPU#11 stuck for 22s! [stress-ng:878]
[  1.018467] Modules linked in: a b
[  1.018470] CPU: 11 PID: 878 Comm: stress-ng Not tainted 6.12.0 #1
[  1.018471] Hardware name: x
[  1.018485] RIP: 0010:native_queued_spin_lock_slowpath+0x88/0x300
[  1.018486] Code: 00 01
[  1.018487] RSP: 0018:ffffc9000a5c7b18 EFLAGS: 00000202
[  1.018490] Call Trace:
[  1.018491]  <IRQ>
[  1.018491]  ? watchdog_timer_fn+0x1e0/0x260
[  1.018491]  </IRQ>
[  1.018491]  <TASK>
[  1.018491]  ? asm_sysvec_apic_timer_interrupt+0x1a/0x20
[  1.018492]  _raw_spin_lock_irqsave+0x46/0x60
[  1.018493]  folio_lruvec_lock_irqsave+0x5f/0x90
[  1.018494]  folio_batch_move_lru+0x91/0x150
[  1.018498]  </TASK>
";

const PATH: &str = "folio_batch_move_lru folio_lruvec_lock_irqsave _raw_spin_lock_irqsave \
                    native_queued_spin_lock_slowpath";

#[test]
fn the_register_is_the_innermost_function() {
    assert_eq!(of(LOCKUP), one("CPU 11, stress-ng:878, 22 s, soft lockup", PATH));
    let plain: String = LOCKUP.lines().map(|line| format!("{}\n", &line[13..])).collect();
    assert_eq!(of(&plain), of(LOCKUP), "without prefixes");
}

#[test]
fn frames_of_the_interrupt_that_prints_are_left_out() {
    let text = "\
NMI backtrace for cpu 3
CPU: 3 PID: 9 Comm: a Not tainted
Call Trace:
 <NMI>
 nmi_cpu_backtrace+0x1/0x2
 </NMI>
RIP: 0010:native_queued_spin_lock_slowpath+0x88/0x300
 <IRQ>
 _raw_spin_lock_irqsave+0x1/0x2
 folio_rotate_reclaimable+0x1/0x2
 </IRQ>
 <TASK>
 clear_page_erms+0x1/0x2
 do_anonymous_page+0x1/0x2
 </TASK>
";
    let path = "folio_rotate_reclaimable _raw_spin_lock_irqsave native_queued_spin_lock_slowpath";
    assert_eq!(of(text), one("CPU 3, a:9, backtrace", path));
    let old = "\
BUG: soft lockup - CPU#1 stuck for 22s! [a:9]
Call Trace:
 <IRQ>  [<ffffffff81>] dump_stack+0x1/0x2
 [<ffffffff81>] watchdog_timer_fn+0x1/0x2
 <EOI>  [<ffffffff81>] ? x+0x1/0x2
 [<ffffffff81>] _raw_spin_lock+0x1/0x2
 [<ffffffff81>] zap_pte_range+0x1/0x2
";
    assert_eq!(of(old), one("CPU 1, a:9, 22 s, soft lockup", "zap_pte_range _raw_spin_lock"));
}

#[test]
fn hung_tasks_have_their_task_and_holders() {
    let text = "\
INFO: task java:4211 blocked for more than 120 seconds.
      Not tainted 5.14.0 #1
\"echo 0 > /proc/sys/kernel/hung_task_timeout_secs\" disables this message.
task:java            state:D stack:0     pid:4211  ppid:1      flags:0x00000002
Call Trace:
 <TASK>
 __schedule+0x20a/0x550
 schedule+0x2d/0x70
 rwsem_down_write_slowpath+0x267/0x4f0
 do_mprotect_pkey+0xf2/0x3f0
 </TASK>
INFO: task java:4212 blocked for more than 121 seconds.
task:java            state:D stack:0     pid:4212  ppid:1      flags:0x00000002
 __schedule+0x20a/0x550
 folio_wait_bit_common+0x1/0x2
2 locks held by gc/4300:
 #0: ffff888101 (&mm->mmap_lock){++++}-{3:3}, at: __vm_munmap+0x5/0x10
";
    let all = of(text);
    assert_eq!(all[0].0, "java:4211, 120 s, hung task");
    assert_eq!(all[0].1, "do_mprotect_pkey rwsem_down_write_slowpath schedule __schedule");
    assert_eq!((all.len(), all[1].0.as_str()), (2, "java:4212, 121 s, hung task"));
    let found = parse(&lines(text), 0).unwrap();
    assert_eq!(found.holders, [("&mm->mmap_lock".to_owned(), "gc:4300".to_owned())]);
}

#[test]
fn sentences_begin_no_report() {
    for text in ["we saw a soft lockup", "it detected stalls", "a hard LOCKUP is bad", "CPU: fast"]
    {
        assert!(parse(&lines(text), 0).is_none(), "{text}");
    }
}
