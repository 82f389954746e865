//! Forms of public texts that hide a lock or its caller.

use mmscale_measured::Resemblance;

use crate::inputs::{found, shares};

/// Returns the class and the innermost function of each item, with the task and the weight.
fn items(found: &Resemblance) -> Vec<String> {
    let one = |item: &mmscale_measured::Item| {
        let function = item.path.last().map_or("?", String::as_str);
        let who = item.who.as_deref().unwrap_or("-");
        format!("{} {function} {who} {:.4}", item.class, item.weight)
    };
    found.items.iter().map(one).collect()
}

#[track_caller]
fn are(text: &str, expected: &[&str]) {
    let (report, found) = found(text);
    assert_eq!(items(&found), expected, "{:?}", report.stacks);
}

const SPIN: &str = "    native_queued_spin_lock_slowpath+1\n    _raw_spin_lock_irqsave+3\n";

#[test]
fn frames_of_unknown_names_do_not_hide_a_wait() {
    let frames = "    folio_lruvec_lock_irqsave+9\n    folio_batch_move_lru+9\n";
    let text = format!(
        "@a[\n{SPIN}{frames}]: 100\n@a[\n    foo_exit+80\n    bar_exit+40\n    \
         __pv_queued_spin_lock_slowpath+5\n    _raw_spin_lock_irqsave+3\n{frames}]: 900\n"
    );
    are(
        &text,
        &[
            "lruvec folio_lruvec_lock_irqsave - 900.0000",
            "lruvec folio_lruvec_lock_irqsave - 100.0000",
        ],
    );
    let interrupt = format!(
        "@a[\n{SPIN}{frames}]: 1\n@a[\n    tick_x+8\n    asm_sysvec_apic_timer_interrupt+4\n\
         {SPIN}{frames}]: 9\n"
    );
    are(&interrupt, &["lruvec folio_lruvec_lock_irqsave - 1.0000"]);
    let of_all = |text: &str| found(text).1.of_all;
    assert_eq!((of_all(&text), of_all(&interrupt)), (None, Some(0.1)), "the rest is not hidden");
}

#[test]
fn a_semaphore_is_taken_by_the_function_next_to_it() {
    let text = "\n    finish_task_switch\n    __schedule\n    schedule\n    schedule_timeout\n    \
                __down\n    down\n    foo_buf_lock\n    foo_buf_get\n    -    tar (12)\n        \
                2030\n\n";
    are(text, &["semaphore foo_buf_lock - 2030.0000"]);
    let log = "\
INFO: task a:7 blocked for more than 120 seconds.
Call trace:
 __switch_to+0x1/0x2
 __schedule+0x1/0x2
 schedule_timeout+0x1/0x2
 __down_common+0x1/0x2
 __down+0x1/0x2
 down_interruptible+0x1/0x2
 foo_get_stats+0x1/0x2 [foo]
";
    are(log, &["semaphore foo_get_stats a:7, 120 s, hung task 1.0000"]);
}

#[test]
fn the_scheduler_takes_locks() {
    let text = "\
  34.47%--foo_timeout
          schedule
          |
          --34.42%--__schedule
                    |
                    |--31.86%--_raw_spin_lock
                    |          |
                    |           --31.65%--native_queued_spin_lock_slowpath
                    |
                    --0.72%--dequeue_foo
";
    // Either that of the run queue, or that of the CPU numbers of an address space.
    are(text, &["other __schedule - 0.3165"]);
}

#[test]
fn old_calls_take_the_lock_of_the_address_space() {
    let text = "\
INFO: task a:7 blocked for more than 120 seconds.
a             D 0000000000000003     0     7      1 0x00000080
 ffff88011bd53e08 0000000000000086 ffff88011bd53dd0 ffff88011bd53dcc
Call Trace:
 [<ffffffff81510725>] rwsem_down_failed_common+0x95/0x1d0
 [<ffffffff812838c3>] call_rwsem_down_write_failed+0x13/0x20
 [<ffffffff8150fd82>] ? down_write+0x32/0x40
 [<ffffffff81139d4c>] sys_mmap_pgoff+0x5c/0x2d0
 [<ffffffff81010519>] sys_mmap+0x29/0x30
";
    are(text, &["mmap_lock sys_mmap_pgoff a:7, 120 s, hung task 1.0000"]);
}

#[test]
fn a_wrapped_line_after_the_task_keeps_it() {
    let text = "\
INFO: task a:7 blocked for more than 122 seconds.
      Not tainted 6.14.0 #726
task:a state:D stack:0     pid:7   tgid:7   ppid:3
                                  task_flags:0x440140 flags:0x00000000
Call Trace:
 <TASK>
 __schedule+0x2c9/0x7f0
 schedule+0x27/0xa0
 rwsem_down_read_slowpath+0x278/0x4c0
 down_read+0x59/0xb0
 page_cache_ra_unbounded+0x65/0x1b0
";
    are(text, &["invalidate_lock page_cache_ra_unbounded a:7, 122 s, hung task 1.0000"]);
}

#[test]
fn a_reply_within_a_stack_does_not_split_it() {
    let text = "\
> [2107.653718]  __schedule+0x2e3/0x740
> [2107.654811]  schedule+0x42/0xb0
> [2107.655829]  rwsem_down_read_slowpath+0x16c/0x4a0

Which task has it?

> [2107.657161]  __down_read+0x6b/0x80
> [2107.658254]  __percpu_down_read+0x54/0x80
> [2107.659413]  __foo_start_write+0x79/0x80
> [2107.660546]  foo_evict+0x354/0x5c0 [foo]
";
    are(text, &["percpu_rwsem __foo_start_write - 1.0000"]);
    let end = text.find("> [2107.657161]").unwrap();
    are(&text[..end], &[]);
}

#[test]
fn the_function_of_a_row_is_below_its_callers() {
    let text = "\
     0.92%  foo1   [kernel.kallsyms]   [k] native_queued_spin_lock_slowpath
            |
             --0.86%--entry_SYSCALL_64_after_hwframe
                       do_syscall_64

     0.90%  foo2   [kernel.kallsyms]   [k] native_queued_spin_lock_slowpath
            |
             --0.85%--entry_SYSCALL_64_after_hwframe
                       do_syscall_64
";
    let (report, found) = found(text);
    let sum: f64 = found.items.iter().map(|item| item.weight).sum();
    assert!((sum - 0.0182).abs() < 1e-9, "the shares of both rows: {sum}");
    let name = "native_queued_spin_lock_slowpath";
    let leaf = |stack: &mmscale_measured::Stack| stack.path.last().is_some_and(|f| f == name);
    assert!(report.stacks.iter().all(leaf), "{:?}", report.stacks);
    assert!(found.items.iter().all(|item| item.path.is_empty()), "no entry takes a lock");
}

#[test]
fn a_second_table_of_functions_is_not_added() {
    let text = "\
     2.02%  [kernel]       [k] _raw_spin_lock
     1.64%  [kernel]       [k] native_queued_spin_lock_slowpath

   PerfTop:    7706 irqs/sec  kernel:13.3% [4000Hz cycles],  (all, 2 CPUs)
-------------------------------------------------------------------------------

     2.26%  [kernel]       [k] delay_foo
     2.21%  [kernel]       [k] _raw_spin_lock
     1.62%  [kernel]       [k] native_queued_spin_lock_slowpath
";
    let (report, _) = found(text);
    let sum: f64 = report.flat.iter().map(|(_, share)| share).sum();
    assert!((sum - 0.0366).abs() < 1e-9, "{:?}", report.flat);
    let note = "line 7 begins another table of functions: only the first is counted";
    assert!(report.notes.iter().any(|one| one == note), "{:?}", report.notes);
    // Rows that are not sorted are of one table.
    let text = "     1.10%  [kernel]  [k] foo_a\n     2.20%  [kernel]  [k] _raw_spin_lock\n";
    let (report, _) = found(text);
    assert_eq!((report.flat.len(), report.notes.len()), (2, 0), "{:?}", report.notes);
}

#[test]
fn the_bar_at_the_side_of_a_window_is_no_name() {
    for bar in ["▒", "◆", "#", "█"] {
        let text = format!(
            "-   29.36%    29.36%  [kernel]     [k] native_queued_spin_lock_slowpath      {bar}\n\
             \x20  - native_queued_spin_lock_slowpath                              {bar}\n      \
             - 71.14% _raw_spin_lock_irq                                  {bar}\n         \
             - shrink_inactive_list                                   {bar}\n"
        );
        // The rest of the row has no caller.
        are(&text, &["lruvec shrink_inactive_list - 0.2089", "other ? - 0.0847"]);
    }
}

#[test]
fn a_row_with_callees_begins_with_the_outermost_function() {
    let text = "\
11.31%     0.03%  swapper          [kernel.vmlinux]            [k] foo_idle
        |
        --11.28%--foo_idle
                  |
                  --11.27%--foo_switch
                            |
                            |--8.61%--foo_get
                            |          |
                            |           --5.78%--_raw_spin_lock
                            |                     |
                            |                      --5.56%--native_queued_spin_lock_slowpath
                            |
                            --0.57%--foo_mm
";
    are(text, &["other foo_get - 0.0556"]);
}

#[test]
fn brackets_without_a_time_are_prefixes() {
    let text = "\
  [ ] watchdog: BUG: soft lockup - CPU#11 stuck for 22s!
  [ ] RIP: 0010:native_queued_spin_lock_slowpath+0x4de/0x940
  [ ] Call Trace:
  [ ]  _raw_spin_lock+0xc1/0xd0
  [ ]  foo_get_port+0x527/0x650 [foo]
";
    are(text, &["other foo_get_port CPU 11, 22 s, soft lockup 1.0000"]);
}

#[test]
fn frames_may_have_a_place_in_the_source() {
    let text = "\
INFO: task foo/u9:5:546 blocked for more than 143 seconds.
task:foo/u9:5    state:D stack:25936 pid:  546 ppid:     2 flags:0x00004000
Call Trace:
 context_switch kernel/sched/core.c:4940 [inline]
 __schedule+0xcd9/0x2530 kernel/sched/core.c:6287
 schedule+0xd3/0x270 kernel/sched/core.c:6366
 rwsem_down_read_slowpath+0x4ee/0x9d0 kernel/locking/rwsem.c:993
 __down_read kernel/locking/rwsem.c:1223 [inline]
 foo_read_lock+0x31/0x350 fs/foo/locking.c:47
 foo_search fs/foo/ctree.c:1623 [inline]
";
    are(text, &["rwsem foo_read_lock foo/u9:5:546, 143 s, hung task 1.0000"]);
}

#[test]
fn frames_of_powerpc_have_two_addresses() {
    let text = "\
[ 1108.791169] INFO: task a:5135 blocked for more than 120 seconds.
[ 1108.791620] Call Trace:
[ 1108.791631] [c000001b9ab07500] [c000001b9ab07540] 0xc000001b9ab07540 (unreliable)
[ 1108.791645] [c000001b9ab076d0] [c00000000001b5d0] __switch_to+0x280/0x470
[ 1108.791655] [c000001b9ab07730] [c000000000b31f24] .__schedule+0x384/0xa20
[ 1108.791664] [c000001b9ab07800] [c000000000b32608] schedule+0x48/0xc0
[ 1108.791675] [c000001b9ab07830] [c00000000011d5bc] rwsem_down_write_slowpath+0x2c/0x60
[ 1108.791684] [c000001b9ab07860] [c000000000b33448] foo_write+0x28/0x80
";
    are(text, &["rwsem foo_write a:5135, 120 s, hung task 1.0000"]);
    let plain: String = text.lines().map(|line| format!("{}\n", &line[15..])).collect();
    are(&plain, &["rwsem foo_write a:5135, 120 s, hung task 1.0000"]);
}

#[test]
fn a_task_whose_frames_are_all_unsure_stays() {
    let text = "\
INFO: task foo-Server:27090 blocked for more than 120 seconds.
foo-Server      D ffff88007a2dd140     0 27090   3047 0x00000000
 ffff88007a2dd140 0000000000000086 0000000000000040 ffff8800081b81c0
Call Trace:
 [<ffffffff8135067c>] ? __mutex_lock_common.isra.5+0xff/0x164
 [<ffffffff8135056a>] ? mutex_lock+0x1a/0x2d
 [<ffffffff81104029>] ? foo_component+0x1f4/0x406
 [<ffffffff81105ea7>] ? foo_last+0x108/0x58d
";
    are(
        text,
        &["mutex foo_component foo-Server:27090, 120 s, hung task, by frames with question \
           marks 1.0000"],
    );
    assert_eq!(shares(text), [("mutex".to_owned(), 100.0)]);
}
