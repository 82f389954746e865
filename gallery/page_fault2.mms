// The gallery: will-it-scale's page_fault2: like page_fault1, with a private mapping of a file: each write copies a page.
summary "faults that copy pages of a file by a number of tasks";
profile "x86-512" cpus 96;
window 80ms after 40ms;

param bytes = 16 MiB      "size of the file";
param in_threads = 0 [0..1]  "1: the threads of one process; 0: a process on each CPU";
param tasks = 1 [1..4096]   "processes or threads: one on each core, node after node";

program work {
    f = memfd_create(bytes);
    start;
    // Tasks of a real computer are not in step: the first round writes to a random part.
    part = rand(1, bytes / 1 page + 1);
    loop {
        mem = mmap(f, PRIVATE);
        for i in 0..part {
            write(mem[i]);
            count;
        }
        munmap(mem);
        part = pages(mem);
    }
}

process each (1 - in_threads) * tasks on cores { work(); }
process one in_threads {
    threads tasks on cores { work(); }
}
