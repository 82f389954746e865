// will-it-scale's page_fault2: like page_fault1, with a private mapping of a file: each write copies a page.
summary "faults that copy pages of a file on every CPU";
profile "x86-512" cpus 96;
window 40ms after 10ms;

param bytes = 8 MiB        "size of the file";
param in_threads = 0 [0..1]  "1: the threads of one process; 0: a process on each CPU";

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

process each 1 - in_threads per_cpu { work(); }
process one in_threads { threads per_cpu { work(); } }
