// vm-scalability's small-allocs and small-allocs-mt: tasks map 10 pages and read each of them, again and again.
// Nothing is unmapped; neighbours become one VMA. One operation is a mapping with its pages.
summary "small mappings that are read, on every CPU";
profile "x86-512" cpus 96;
window 10ms after 5ms;

param in_threads = 0 [0..1]  "1: the threads of one process; 0: a process on each CPU";

program work {
    start;
    loop {
        mem = mmap(10 pages);
        for i in 0..10 { read(mem[i]); }
        count;
    }
}

process each 1 - in_threads per_cpu { work(); }
process one in_threads { threads per_cpu { work(); } }
