// The gallery: will-it-scale's malloc1: malloc and free of a large block, which is mmap, a write to the header, and munmap.
summary "malloc and free of large blocks by a number of tasks";
profile "x86-512" cpus 96;
window 10ms after 5ms;

param bytes = 128 MiB      "size of the block";
param in_threads = 0 [0..1]  "1: the threads of one process; 0: a process on each CPU";
param tasks = 1 [1..4096]   "processes or threads: one on each core, node after node";

program work {
    start;
    loop {
        block = mmap(bytes + 1 page);
        write(block[0]);
        munmap(block);
        count;
    }
}

process each (1 - in_threads) * tasks on cores { work(); }
process one in_threads {
    threads tasks on cores { work(); }
}
