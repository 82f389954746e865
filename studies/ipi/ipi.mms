// The service of the study `ipi`: one process with a thread on each CPU. Those on four CPUs change the memory of all,
// so that the kernel interrupts the others; these compute and use their own page.
// Not reproduced: the monitors of the highest priority, which measure how long a CPU is not preempted: use cyclictest
// Not reproduced: the threads of the processes that exit, and the workloads flush, reclaim and spawn
summary "how long is a CPU unable to run other tasks while it waits for other CPUs?";
profile "x86-16" cpus 16;
window 2s after 100ms live 5s;

param gap = 2ms [10us..1s]  "mean time between two operations of a thread";

process service {
    threads per_cpu {
        kept = mmap(16 pages);
        write(kept);
        start;
        if cpu == 0 || cpu == 3 || cpu == 8 || cpu == 11 {
            loop {
                pause = rand(gap / 2, gap * 3 / 2);
                compute(pause / 2);
                sleep(pause / 2);
                at = rand(12);
                part = kept[at .. at + 4];
                choose {
                    5: { mem = mmap(4 pages); write(mem); munmap(mem); }
                    4: { write(part); mprotect(part, READ); read(part); mprotect(part, WRITE); }
                    3: { write(part); madvise(part, DONTNEED); }
                    3: { write(part); madvise(part, PAGEOUT); read(part); }
                    1: { child = process { own = mmap(8 pages); write(own); } wait(child); }
                }
                count;
            }
        } else {
            loop { read(kept[0]); compute(1ms); }
        }
    }
}
