// The gallery: will-it-scale's page_fault1: map anonymous memory, write to each page, unmap. One operation is a page.
summary "faults of anonymous pages by a number of tasks";
profile "x86-512" cpus 96;
window 80ms after 40ms;

param bytes = 16 MiB      "memory that is mapped";
param in_threads = 0 [0..1]  "1: the threads of one process; 0: a process on each CPU";
param tasks = 1 [1..4096]   "processes or threads: one on each core, node after node";

program work {
    start;
    // Tasks of a real computer are not in step: the first mapping has a random size.
    size = rand(1, bytes / 1 page + 1) * 1 page;
    loop {
        mem = mmap(size);
        for i in 0..pages(mem) {
            write(mem[i]);
            count;
        }
        munmap(mem);
        size = bytes;
    }
}

process each (1 - in_threads) * tasks on cores { work(); }
process one in_threads {
    threads tasks on cores { work(); }
}
