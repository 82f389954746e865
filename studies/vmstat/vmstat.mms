// The worker of the study `vmstat`: it maps a region, writes all of it, holds it for half of a period, checks it and
// unmaps it, and computes until the next period.
// Not reproduced: the arms' ticks; a kernel has its own, each vm.stat_interval seconds
// Not reproduced: the reader of /proc/zoneinfo (--set zoneinfo_ms), and other users of memory (spare_percent)
summary "do the per-CPU ticks (vmstat_update, pcp decay) meet on zone->lock?";
profile "arm64-72" cpus 72;
window 10s after 3s live 10s;

param bytes  = 16 MiB            "memory of a burst";
param period = 2s [1ms..60s]     "mean time from burst to burst";
param duty   = 50 [1..100]       "percent of a period for which the memory is held";

process worker per_cpu {
    start;
    compute(rand(period));
    loop {
        begin = now;
        // Periods differ by a quarter, so that bursts do not stay in step.
        length = period * rand(75, 126) / 100;
        mem = mmap(bytes);
        write(mem);
        rest = begin + length * duty / 100 - now;
        if rest > 0ns { compute(rest); }
        check(mem);
        munmap(mem);
        count;
        rest = begin + length - now;
        if rest > 0ns { compute(rest); }
    }
}
