// The gallery: will-it-scale's tlb_flush1: page by page of a private mapping of a file: write, drop, read. One operation is a page.
summary "TLB flushes of single file pages by a number of tasks";
profile "x86-512" cpus 96;
window 10ms after 5ms;

param bytes = 128 MiB       "memory of each thread or process";
param in_threads = 0 [0..1]  "1: the threads of one process; 0: a process on each CPU";
param tasks = 1 [1..4096]   "processes or threads: one on each core, node after node";

program work {
    f = memfd_create(bytes);
    mem = mmap(f, PRIVATE);
    start;
    i = 0;
    loop {
        write(mem[i]);
        madvise(mem[i], DONTNEED);
        read(mem[i]);
        count;
        i = (i + 1) % pages(mem);
    }
}

process each (1 - in_threads) * tasks on cores { work(); }
process one in_threads {
    threads tasks on cores { work(); }
}
