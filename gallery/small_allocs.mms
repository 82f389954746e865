// The gallery: vm-scalability's small-allocs-mt. Threads of one process map 10 pages and read each of them, again and
// again. Nothing is unmapped; neighbours become one VMA. One operation is a mapping with its pages.
summary "small mappings of the threads of one process, which are read";
profile "x86-512" cpus 96;
window 10ms after 5ms;

process one {
    threads per_cpu {
        start;
        loop {
            mem = mmap(10 pages);
            for i in 0..10 {
                read(mem[i]);
            }
            count;
        }
    }
}
