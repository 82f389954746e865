// The workload `exit` of the study `pcp`: a process with a thread on each of four CPUs, all of which touch its memory;
// then it exits, and one CPU frees what all allocated. Here that is repeated.
// Not reproduced: the other workloads of the study: build, purger, mixed, oom-edge, compile; near are the scripts
// Not reproduced: shell-storm (build), purge (purger) and page_fault1 (mixed), as in mmscale kernel reproduce purge
// Not reproduced: the memory cgroup of each CPU
summary "do page caches that own pageblocks relieve zone->lock, and at what cost?";
profile "x86-32" cpus 32;

param bytes = 8 MiB  "memory that each thread touches";

process exit max(cpus / 4, 1) on id * 4 {
    start;
    loop {
        child = process on cpu {
            heap = mmap(bytes * min(cpus, 4));
            threads min(cpus, 4) on (cpu + id) % cpus {
                write(heap[bytes * id .. bytes * id + bytes]);
            }
        }
        wait(child);
        count;
    }
}
