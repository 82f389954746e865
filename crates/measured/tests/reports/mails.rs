//! Mails: what they resemble, and why. The figures are those of public reports, the words are not.

use mmscale_document::Problem;
use mmscale_measured::{Basis, Report, Resemblance, Table, read, resemble};

use crate::samples::{KLOCKSTAT, LOCK_STAT, PERF, PERF_STACKS, PERF_TASKS};

fn of(text: &str) -> (Report, Resemblance) {
    let report = read(text.as_bytes()).expect("a text");
    let found = resemble(&report, &report.tables.iter().collect::<Vec<&Table>>());
    (report, found)
}

fn best(text: &str) -> Option<Problem> {
    of(text).1.best().map(|likeness| likeness.problem)
}

/// A summary of waits before and after a change of the tick.
pub(crate) const TICK: &str = "\
Every CPU's vmstat_update runs in the same jiffy and drains its cache:
decay_pcp_high() -> free_pcppages_bulk(), on a 72-CPU arm64 machine.

free_pcppages_bulk waits (KASAN):
+-------------+----------+---------+
| Metric      | before   | after   |
+-------------+----------+---------+
| Contentions | 872      | 117     |
| Total wait  | 199.43ms | 80.76ms |
| Max wait    | 4.19ms   | 35.76ms |
+-------------+----------+---------+
";

#[test]
fn a_summary_is_placed_by_the_functions_that_the_text_names() {
    let (report, found) = of(TICK);
    let table = &report.tables[0];
    assert_eq!((table.tool.as_str(), table.lines), ("summary", (6, 11)));
    assert_eq!(table.caption, "free_pcppages_bulk waits (KASAN)");
    let figures: Vec<_> =
        table.waits.iter().map(|w| (w.contentions, w.wait_total_ns, w.wait_max_ns)).collect();
    assert_eq!(
        figures,
        [
            (Some(872), Some(199_430_000), Some(4_190_000)),
            (Some(117), Some(80_760_000), Some(35_760_000))
        ]
    );
    assert_eq!(found.basis, Basis::Waits);
    let likeness = found.best().expect("a problem");
    assert_eq!((likeness.problem, likeness.share), (Problem::Vmstat, 1.0));
    assert!(found.items.iter().all(|item| item.by_names));
    assert_eq!(report.sizes.cpus.keys().collect::<Vec<_>>(), [&72]);
    assert!(report.prose.kasan);
    // Without the tick's names the same table is one of the page caches.
    let other = TICK.replace("vmstat_update", "it").replace("decay_pcp_high() -> ", "");
    assert_eq!(best(&other), Some(Problem::Pcp));
}

/// Stacks of programs that populate and unmap.
pub(crate) const STACKS: &str = "\
The time is spent in two places:

    vm_mmap_pgoff
      __mm_populate
        populate_vma_page_range
          lru_add_drain
            folio_batch_move_lru
              folio_lruvec_lock_irqsave
                native_queued_spin_lock_slowpath

and

    __x64_sys_munmap
      __vm_munmap
        ...
          release_pages
            folios_put_refs
              __page_cache_release
                folio_lruvec_relock_irqsave
                  native_queued_spin_lock_slowpath
";

#[test]
fn stacks_are_placed_by_their_locks() {
    let (report, found) = of(STACKS);
    assert_eq!((report.stacks.len(), found.basis), (2, Basis::Paths));
    let likeness = found.best().expect("a problem");
    assert_eq!((likeness.problem, likeness.share), (Problem::Churn, 1.0));
    assert!(found.items.iter().all(|item| item.class == "lruvec"));
}

/// A tree of samples of a reaper, quoted a second time in a reply.
pub(crate) const TREE: &str = "\
|--99.74%-- oom_reaper
|  |--76.67%-- unmap_page_range
|  |  |--33.70%-- __pte_offset_map_lock
|  |  |  |--98.46%-- _raw_spin_lock
|  |  |--27.61%-- free_swap_and_cache_nr
|  |  |--16.40%-- folio_remove_rmap_ptes
|  |--12.61%-- tlb_finish_mmu

> |--99.74%-- oom_reaper
> |  |--76.67%-- unmap_page_range
> |  |  |--33.70%-- __pte_offset_map_lock
> |  |  |  |--98.46%-- _raw_spin_lock
> |  |  |--27.61%-- free_swap_and_cache_nr
> |  |  |--16.40%-- folio_remove_rmap_ptes
> |  |--12.61%-- tlb_finish_mmu
";

#[test]
fn a_tree_counts_once_and_only_its_waits() {
    let (report, found) = of(TREE);
    assert_eq!(report.stacks.len(), 6, "{:?}", report.stacks);
    let likeness = found.best().expect("a problem");
    assert_eq!((likeness.problem, likeness.share), (Problem::Reap, 1.0));
    // 99.74 % of 76.67 % of 33.70 % of 98.46 % of the samples.
    assert!((found.weight() - 0.2537).abs() < 1e-3, "{}", found.weight());
}

/// A list of `perf report` in place of a table of waits of the host.
#[test]
fn a_list_of_samples_is_placed_by_its_largest_part() {
    let list = "On our hosts perf report shows:\n\n  18.10%  folio_lruvec_relock_irqsave\n   \
                9.02%  free_pcppages_bulk\n   4.21%  down_read\n\nWe run Go programs.\n";
    let tree = "- 31.33% native_queued_spin_lock_slowpath\n   - 18.10% \
                folio_lruvec_relock_irqsave\n   - 9.02% free_pcppages_bulk\n   - 4.21% \
                rwsem_down_read_slowpath\n";
    for text in [list, tree] {
        let (report, found) = of(text);
        assert_eq!(found.basis, Basis::Samples, "{report:?}");
        let of: Vec<(Problem, i32)> =
            found.likeness.iter().map(|l| (l.problem, (100.0 * l.share).round() as i32)).collect();
        assert_eq!(of, [(Problem::Churn, 58), (Problem::Pcp, 29)], "{text}");
    }
}

#[test]
fn calls_between_cpus_are_placed_by_their_functions() {
    let text = "@stack[\ntrace_preempt_on+143\npreempt_count_sub+67\n\
                arch_tlbbatch_flush/flush_tlb_mm_range\ntask_exit/page_reclaim/...\n]\n";
    let (_, found) = of(text);
    assert_eq!(found.best().map(|likeness| likeness.problem), Some(Problem::Ipi));
    let last = found.items[0].path.last();
    assert_eq!(last.map(String::as_str), Some("flush_tlb_mm_range"), "the count is no caller");
}

#[test]
fn sentences_alone_need_two_names() {
    let text = "We see more contention on zone->lock. jemalloc's purger threads overfill their \
                PCP on a 32-way machine. Large PCPs make it worse.";
    let (report, found) = of(text);
    let names = found.best().map(|likeness| likeness.names.join(" "));
    assert_eq!(names.as_deref(), Some("jemalloc PCP purger zone->lock"), "a plural is no name");
    assert_eq!(found.basis, Basis::Names);
    assert_eq!(found.best().map(|likeness| likeness.problem), Some(Problem::Pcp));
    assert_eq!(report.sizes.cpus.keys().collect::<Vec<_>>(), [&32]);
    assert_eq!(best("We see more contention on zone->lock."), None);
    assert_eq!(best("The scheduler is slow on 8 CPUs."), None);
}

#[test]
fn tables_are_placed_by_their_waits() {
    let (_, found) = of(PERF_STACKS);
    let shares: Vec<(Problem, f64)> = found.likeness.iter().map(|l| (l.problem, l.share)).collect();
    assert_eq!(shares, [(Problem::Churn, 0.78), (Problem::Vmstat, 0.22)]);
    assert_eq!(best(PERF), Some(Problem::Churn));
    let (_, found) = of(LOCK_STAT);
    assert_eq!(found.best().map(|likeness| likeness.problem), Some(Problem::Pcp));
    let zone: Vec<(String, f64)> = found
        .items
        .iter()
        .filter(|item| item.class == "zone")
        .map(|item| (item.path.join(" "), item.weight))
        .collect();
    let part = |name: &str, ns: f64| (name.to_owned(), ns);
    assert_eq!(zone, [part("free_pcppages_bulk", 9_822_918.0), part("rmqueue_bulk", 6_548_612.0)]);
}

#[test]
fn a_lock_of_another_subsystem_resembles_nothing() {
    let unknown = PERF
        .replace("folio_lruvec_lock_irqsave", "ext4_mb_new_blocks")
        .replace("do_user_addr_fault", "ext4_iget");
    let mail = format!("Is this the zone->lock and PCP problem of jemalloc?\n\n{unknown}");
    let (_, found) = of(&mail);
    assert_eq!(found.best(), None, "names do not outweigh waits: {found:?}");
    assert!(found.items.iter().all(|item| item.problem.is_none()));
    assert_eq!(best(KLOCKSTAT), None);
    let (_, found) = of(PERF_TASKS);
    assert_eq!((found.best(), found.items.len()), (None, 0), "tasks name no lock");
}

/// A lockup in a log, and the tasks of the dump that `crash` prints.
const CRASH: &str = "\
watchdog: Watchdog detected hard LOCKUP on cpu 173
RIP: 0010:native_queued_spin_lock_slowpath+0x255/0x2a0
Call Trace:
 _raw_spin_lock_irqsave+0x31/0x40
 folio_lruvec_lock_irqsave+0x5f/0x90
 folio_batch_move_lru+0x91/0x150

The stack of the CPU:
PID: 12     TASK: ffff967981712680  CPU: 173  COMMAND: \"kworker/1\"
 #0 [fffffe00002079c8] machine_kexec at ffffffffa3e6d861
    [exception RIP: native_queued_spin_lock_slowpath+101]
    RIP: ffffffffa3ef8345  RSP: ffffa4e94c51be40  RFLAGS: 00000002

The owner of the lock:
PID: 2865     TASK: ffff888139214d40  CPU: 40   COMMAND: \"kswapd0\"
 #0 [fffffe0000945e60] crash_nmi_callback at ffffffffa567a555
 #1 [fffffe0000945e68] nmi_handle at ffffffffa563b171
    [exception RIP: isolate_lru_folios+403]
    RIP: ffffffffa597df53  RSP: ffffc90006fb7c28  RFLAGS: 00000002
";

#[test]
fn a_dump_of_crash_has_the_holder_and_the_situation() {
    let (report, found) = of(CRASH);
    assert_eq!(report.stacks.len(), 2, "{:?}", report.stacks);
    assert_eq!((found.items.len(), found.items[0].class.as_str()), (1, "lruvec"));
    assert_eq!(found.holders[0].who, "CPU 40, kswapd0:2865, backtrace");
    assert_eq!(found.best(), None, "the holder reclaims: no study does");
    let own = CRASH.replace("isolate_lru_folios", "folio_batch_move_lru");
    assert_eq!(best(&own), Some(Problem::Churn));
}

#[test]
fn stacks_of_crash_and_of_the_tracer_are_read() {
    let text = "267 CPUs wait, with stack traces showing:\n\n\
        \x20#4 [ffffa6226fb4bc70] native_queued_spin_lock_slowpath at ffffffff99cd4b7e\n\
        \x20#5 [ffffa6226fb4bc90] _raw_spin_lock_irqsave at ffffffff99cd3e36\n\
        \x20#6 [ffffa6226fb4bca0] trace_pid_list_is_set at ffffffff99267554\n\
        \x20#7 [ffffa6226fb4bcf0] __schedule at ffffffff99ccd161\n";
    let (_, found) = of(text);
    assert_eq!(found.items[0].named(), "other lock in trace_pid_list_is_set");
}

#[test]
fn frames_that_are_inlined_are_frames() {
    let text = "INFO: task a:5847 blocked for more than 143 seconds.\n\
        task:a state:D stack:24944 pid:5847\nCall Trace:\n <TASK>\n\
        \x20context_switch kernel/sched/core.c:5378 [inline]\n\
        \x20__schedule+0x18bc/0x4c40 kernel/sched/core.c:6765\n\
        \x20__schedule_loop kernel/sched/core.c:6842 [inline]\n\
        \x20schedule+0x14b/0x320 kernel/sched/core.c:6857\n\
        \x20schedule_preempt_disabled+0x13/0x30 kernel/sched/core.c:6914\n\
        \x20rwsem_down_write_slowpath+0xeee/0x13b0 kernel/locking/rwsem.c:1176\n\
        \x20down_write+0x1d7/0x220 kernel/locking/rwsem.c:1578\n\
        \x20inode_lock include/linux/fs.h:877 [inline]\n\
        \x20__blockdev_direct_IO+0x31d/0x4890 fs/direct-io.c:1140\n";
    assert_eq!(of(text).1.items[0].class, "i_rwsem");
}

#[test]
fn releases_of_a_semaphore_wait_for_it() {
    let text = "    75.42%  faults  [kernel]  [k] _raw_spin_lock_irqsave\n            |\n\
        \x20           --- _raw_spin_lock_irqsave\n               |\n\
        \x20              |--50.00%-- __down_read_trylock\n\
        \x20              |          down_read_trylock\n               |          do_page_fault\n\
        \x20              |\n               |--50.00%-- __up_read\n\
        \x20              |          up_read\n               |          do_page_fault\n";
    let (_, found) = of(text);
    assert!(found.items.iter().all(|item| item.class == "mmap_lock"), "{:?}", found.items);
}

#[test]
fn rows_of_oprofile_are_no_sentences() {
    let text = "samples  %        app name   symbol name\n\
        7995      8.7435  vmlinux                  isolate_lru_pages\n\
        3764      4.1164  vmlinux                  putback_inactive_pages\n";
    assert_eq!(of(text).1.basis, Basis::None);
}

#[test]
fn a_warning_of_lockdep_has_no_waits() {
    let text = "[   20.07] a-b/554 is trying to acquire lock:\n\
        [   20.083] 3c2944ca (&f->sem){+.+.}, at: one_read+0x30/0x5c\n[   20.090]\n\
        [   20.096] but task is already holding lock:\n\
        [   20.096] 91192e34 (&mm->mmap_sem){++++}, at: do_page_fault+0xb4/0x394\n\
        [   20.151] -> #0 (&f->sem){+.+.}:\n[   20.156]        lock_acquire+0xd8/0x204\n\
        [   20.160]        __mutex_lock+0x90/0x678\n[   20.164]        one_read+0x30/0x5c\n\
        [   20.168]        filemap_fault+0x2cc/0x5d8\n[   20.170] stack backtrace:\n\
        [   20.171] CPU: 0 PID: 554 Comm: a-b Not tainted 4.17.2 #21\n\
        [   20.180]  dump_stack+0x1/0x2\n[   20.181]  __mutex_lock+0x90/0x678\n\
        [   20.182]  one_read+0x30/0x5c\n";
    let (report, found) = of(&text.replace("20.07]", "20.070]"));
    assert_eq!((found.items.len(), report.stacks.len(), report.orders.len()), (0, 0, 1));
    let order = &report.orders[0];
    assert_eq!(
        (order.wanted.0.as_str(), order.held.as_deref()),
        ("&f->sem", Some("&mm->mmap_sem"))
    );
}

#[test]
fn the_lock_of_an_inode_is_not_that_of_its_pages() {
    let stack = |lock: &str| {
        format!(
            "RIP: 0010:native_queued_spin_lock_slowpath+0x1/0x2\n {lock}+0x1/0x2\n \
                 __remove_mapping+0xc9/0x730\n shrink_folio_list+0x121d/0x2f50\n"
        )
    };
    let class = |lock: &str| of(&stack(lock)).1.items[0].class.clone();
    assert_eq!(class("_raw_spin_lock_irq"), "i_pages");
    assert_eq!(class("_raw_spin_lock"), "other");
}

#[test]
fn rows_with_remarks_are_no_sentences() {
    let text = "14.5%  intel_idle\n 3.1%  smp_call_function_many_cond     ← IPI of mprotect\n \
                2.6%  osq_lock   <-- here\n 2.3%  native_queued_spin_lock_slowpath\n";
    let (_, found) = of(text);
    assert_eq!(found.best(), None);
    assert!(found.likeness.iter().all(|one| one.names.is_empty()), "{:?}", found.likeness);
}

#[test]
fn sentences_on_two_problems_decide_nothing() {
    let text = "When the PCP is refilled from the zone lock, its limit grows; in \
                refresh_cpu_vm_stats it shrinks.\n";
    let (_, found) = of(text);
    assert!(found.is_undecided() && found.best().is_none(), "{:?}", found.likeness);
    let tick = format!("{text}Each vmstat_update calls decay_pcp_high and waits.\n");
    assert_eq!(best(&tick), Some(Problem::Vmstat));
}

#[test]
fn decaying_samples_are_no_shares_of_the_caller() {
    let text = "- 4.51% a_commit\n   - 4.54% __a_commit\n      - 2.67% _raw_spin_lock\n         \
                - 3.28% do_raw_spin_lock\n              3.08% __pv_queued_spin_lock_slowpath\n   \
                - 0.86% b_put\n      - 0.62% _raw_spin_lock_irqsave\n         \
                - 0.77% do_raw_spin_lock\n              __pv_queued_spin_lock_slowpath\n";
    let (_, found) = of(text);
    let names: Vec<String> = found.items.iter().map(mmscale_measured::Item::named).collect();
    assert_eq!(names, ["other lock in __a_commit", "other lock in b_put"]);
    assert!((found.items[0].weight / found.weight() - 0.8).abs() < 0.05, "{:?}", found.items);
}

#[test]
fn a_list_of_the_first_perf_top_is_a_profile() {
    let row = |samples: &str, share: &str, function: &str, file: &str| {
        format!("{samples:>21} {share:>5}% {function:<27} {file}\n")
    };
    let text = row("27583.00", "11.6", "copy_user_generic_string", "/lib/x/vmlinux")
        + &row("17264.00", "7.3", "_raw_spin_lock_irqsave", "/lib/x/vmlinux")
        + &row("3141.00", "1.3", "_raw_spin_lock", "[kernel]");
    let (report, found) = of(&text);
    assert_eq!((report.flat.len(), found.best()), (3, None));
}

#[test]
fn stale_frames_take_no_lock() {
    let text = "Call Trace:\n [<ffffffff81367769>] ? __mutex_lock_common+0x127/0x193\n \
                [<ffffffff811dd784>] ? _atomic_dec_and_lock+0x30/0x4c\n \
                [<ffffffffa03dd469>] ? a_rele+0x37/0x5d [b]\n \
                [<ffffffff813675c3>] ? mutex_lock+0x12/0x28\n \
                [<ffffffffa04342c4>] ? a_inactive+0x10/0x1d [b]\n \
                [<ffffffff810ff18c>] ? evict+0x17/0x7e\n";
    assert_eq!(of(text).1.items[0].named(), "mutex lock in a_inactive");
}
