// will-it-scale's tlb_flush1: page by page of a private mapping of a file: write, drop, read. One operation is a page.
summary "TLB flushes of single file pages on every CPU";
profile "x86-512" cpus 96;
window 10ms after 5ms;

param bytes = 128 MiB       "memory of each thread or process";
param in_threads = 0 [0..1]  "1: the threads of one process; 0: a process on each CPU";

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

process each 1 - in_threads per_cpu { work(); }
process one in_threads { threads per_cpu { work(); } }
