// will-it-scale's malloc2: malloc and free of 1 kB, which the C library has in a page that it keeps. No call
// and no fault: the control of malloc1. One operation is both calls.
summary "malloc and free without the kernel on every CPU";
profile "x86-512" cpus 96;
window 10ms after 5ms;

param in_threads = 0 [0..1]  "1: the threads of one process; 0: a process on each CPU";

program work {
    mem = mmap(1 page, POPULATE);
    start;
    loop {
        write(mem);
        compute(20ns);
        count;
    }
}

process each 1 - in_threads per_cpu { work(); }
process one in_threads { threads per_cpu { work(); } }
