//! Reports in the forms of the tools, with figures of our own.

/// `perf lock contention`, recorded while programs populated and unmapped single pages.
pub(crate) const PERF: &str = "\
 contended   total wait     max wait     avg wait         type   caller

      1638      7.80 ms     37.40 us      4.76 us     spinlock   folio_lruvec_lock_irqsave+0x5f
        27    505.64 us     28.69 us     21.98 us     spinlock   sched_tick+0x46
         4     83.90 us     27.76 us     20.97 us     spinlock   __put_partials+0x5d
         2     61.00 us     40.00 us     30.50 us      rwsem:R   do_user_addr_fault+0x1e1
         1     12.00 us     12.00 us     12.00 us        mutex   bpf_prog_release+0xe

=== output for debug ===

bad: 3, total: 80
";

/// `perf lock contention -v`, with a second row.
pub(crate) const PERF_STACKS: &str = "\
 contended   total wait     max wait     avg wait         type   caller

      1638      7.80 ms     37.40 us      4.76 us     spinlock   folio_lruvec_lock_irqsave+0x5f
\t\t\t0xffffffff813e91cf  __traceiter_contention_begin+0x2f
\t\t\t0xffffffff8226f2fe  __pv_queued_spin_lock_slowpath+0x10e
\t\t\t0xffffffff8226e58d  _raw_spin_lock_irqsave+0x4d
\t\t\t0xffffffff816ab37f  folio_lruvec_lock_irqsave+0x5f
\t\t\t0xffffffff815b8368  folio_batch_move_lru+0x88
\t\t\t0xffffffff815b8cda  lru_add_drain_cpu+0x8a
       300      2.20 ms     90.00 us      7.33 us     spinlock   free_pcppages_bulk+0x50
\t\t\t0xffffffff8226e58d  _raw_spin_lock_irqsave+0x4d
\t\t\t0xffffffff816ab37f  free_pcppages_bulk+0x50
\t\t\t0xffffffff816ab380  decay_pcp_high+0x50
\t\t\t0xffffffff816ab381  vmstat_update+0x50
";

/// `perf lock contention -x,`, with a stack.
pub(crate) const PERF_CSV: &str = "\
# output: contended, total wait, max wait, avg wait, type, caller, stacktrace
1638, 7800000, 37400, 4760, spinlock, folio_lruvec_lock_irqsave+0x5f, \
0xffffffff8226e58d _raw_spin_lock_irqsave+0x4d: 0xffffffff816ab37f \
folio_lruvec_lock_irqsave+0x5f: 0xffffffff815b8368 folio_batch_move_lru+0x88
2, 61000, 40000, 30500, rwsem:R, do_user_addr_fault+0x1e1
# debug: total=1640, bad=2, bad_task=0, bad_stack=2, bad_time=0, bad_data=0
";

/// `perf lock contention -t`.
pub(crate) const PERF_TASKS: &str = "\
 contended   total wait     max wait     avg wait          pid   comm

        74    963.04 us     34.46 us     13.01 us        22824   tokio runtime
        36    232.21 us     35.72 us      6.45 us           54   kworker/1:1H-kb
";

/// `perf lock contention -l`.
pub(crate) const PERF_LOCKS: &str = "\
 contended   total wait     max wait     avg wait            address   symbol

         5     24.00 us     14.00 us      4.80 us   ffffffff99d0a180   zone_lock (spinlock)
         3     18.20 us      9.00 us      6.06 us   ffff88812bc00d80   mmap_lock (rwsem)
         1      6.00 us      6.00 us      6.00 us   ffff88812bc00e80    (spinlock)
";

/// `/proc/lock_stat`.
pub(crate) const LOCK_STAT: &str = "\
lock_stat version 0.4
-----------------------------------------------------------------------------------------------
                              class name    con-bounces    contentions   waittime-min   \
waittime-max waittime-total   waittime-avg    acq-bounces   acquisitions   holdtime-min   \
holdtime-max holdtime-total   holdtime-avg
-----------------------------------------------------------------------------------------------

                             &zone->lock:          1200           1500           0.26         \
939.10       16371.53          10.91          47291        2922365           0.16         \
120.69      746402.55           0.26
                             -----------
                             &zone->lock            900          [<ffffffff811502a7>] \
free_pcppages_bulk+0x57/0x280
                             &zone->lock            600          [<000000000ab6c8b0>] \
rmqueue_bulk+0x6c/0x810
                             -----------
                             &zone->lock           1500          [<ffffffff811502a7>] \
free_pcppages_bulk+0x57/0x280

...............................................................................................

                         &mm->mmap_lock-W:            46             84           0.26         \
100.00         200.50           2.39            100            200           0.16         \
50.00         100.00           0.50
                         &mm->mmap_lock-R:            37            100           1.31         \
300.00         500.25           5.00            300            400           0.10         \
60.00         200.00           0.50
                         ---------------
                         &mm->mmap_lock             84          [<ffffffff811502a8>] \
vm_mmap_pgoff+0x57/0x280
";

/// klockstat with libbpf.
pub(crate) const KLOCKSTAT: &str = "\
Tracing mutex/sem lock events...  Hit Ctrl-C to end

                               Caller  Avg Wait    Count   Max Wait   Total Wait
                      do_user_addr_fault+0x1e1     1.2 us      400    40.0 us     480.0 us
                           ext4_iget+0x20   900 ns       10     2.0 us       9.0 us

                               Caller  Avg Hold    Count   Max Hold   Total Hold
                      do_user_addr_fault+0x1e1    10.0 us      400   100.0 us       4.0 ms
Exiting trace of mutex/sem locks
";

/// klockstat in Python.
pub(crate) const KLOCKSTAT_PYTHON: &str = "\
Tracing lock events... Hit Ctrl-C to end.
^C
                                  Caller   Avg Spin  Count   Max spin Total spin
                       pipe_write+0x35        471   4134      16825    1947922

                                  Caller   Avg Hold  Count   Max hold Total hold
                       pipe_write+0x35        481   4134      20006    1990080
";

/// `mmscale live watch --format json`, shortened.
pub(crate) const LIVE: &str = "{\"schema\":\"mmscale/live/1\",\"seconds\":2.5,\"cpus\":2,\
\"classes\":[],\"waits\":[{\"class\":\"lruvec\",\"path\":[\"lru_add_drain\",\
\"folio_batch_move_lru\"],\"contentions\":31,\"wait_total_ns\":120000,\"wait_max_ns\":9000}],\
\"ends\":null,\"resched_max_ns\":null,\"missing\":[\"zap_pte_range\"],\"provenance\":{}}\n";

/// All whole reports.
pub(crate) const ALL: [&str; 9] = [
    PERF,
    PERF_STACKS,
    PERF_CSV,
    PERF_TASKS,
    PERF_LOCKS,
    LOCK_STAT,
    KLOCKSTAT,
    KLOCKSTAT_PYTHON,
    LIVE,
];
