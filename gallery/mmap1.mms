// The gallery: will-it-scale's mmap1: map anonymous memory and unmap it untouched. One operation is both calls.
summary "mmap and munmap by a number of tasks";
profile "x86-512" cpus 96;
window 10ms after 5ms;

param bytes = 128 MiB      "memory that is mapped";
param in_threads = 0 [0..1]  "1: the threads of one process; 0: a process on each CPU";
param tasks = 1 [1..4096]   "processes or threads: one on each core, node after node";

program work {
    start;
    loop {
        mem = mmap(bytes);
        munmap(mem);
        count;
    }
}

process each (1 - in_threads) * tasks on cores { work(); }
process one in_threads {
    threads tasks on cores { work(); }
}
