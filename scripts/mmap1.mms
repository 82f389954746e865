// will-it-scale's mmap1: map anonymous memory and unmap it untouched. One operation is both calls.
summary "mmap and munmap on every CPU";
profile "x86-512" cpus 96;
window 10ms after 5ms;

param bytes = 128 MiB      "memory that is mapped";
param in_threads = 0 [0..1]  "1: the threads of one process; 0: a process on each CPU";

program work {
    start;
    loop {
        mem = mmap(bytes);
        munmap(mem);
        count;
    }
}

process each 1 - in_threads per_cpu { work(); }
process one in_threads { threads per_cpu { work(); } }
