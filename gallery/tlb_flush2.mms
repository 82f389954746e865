// The gallery: will-it-scale's tlb_flush2: page by page of anonymous memory: write, drop, read. One operation is a page.
summary "TLB flushes of single pages by a number of tasks";
profile "x86-512" cpus 96;
window 10ms after 5ms;

param bytes = 1 MiB       "memory of each thread or process";
param in_threads = 0 [0..1]  "1: the threads of one process; 0: a process on each CPU";
param tasks = 1 [1..4096]   "processes or threads: one on each core, node after node";

program work {
    mem = mmap(bytes);
    start;
    loop {
        for i in 0..pages(mem) {
            write(mem[i]);
            madvise(mem[i], DONTNEED);
            read(mem[i]);
            count;
        }
    }
}

process each (1 - in_threads) * tasks on cores { work(); }
process one in_threads {
    threads tasks on cores { work(); }
}
