// stress-ng's fault stressor: a page is mapped, written to and unmapped, of a file and of anonymous memory in
// turn. One operation is a page.
summary "single pages that are mapped, written to and unmapped on every CPU";
profile "x86-512" cpus 96;
window 10ms after 5ms;

param in_threads = 0 [0..1]  "1: the threads of one process; 0: a process on each CPU";

program work {
    f = memfd_create(1 page);
    start;
    loop {
        mem = mmap(f, SHARED);
        write(mem);
        munmap(mem);
        count;
        mem = mmap(1 page);
        write(mem);
        munmap(mem);
        count;
    }
}

process each 1 - in_threads per_cpu { work(); }
process one in_threads { threads per_cpu { work(); } }
