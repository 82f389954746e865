// usemem of vm-scalability on mapped files and shared memory (mmap-pread, mmap-xread, shm-*, lru-shm,
// lru-file-mmap-read): tasks read or write pages of a file. One operation is a page.
summary "pages of mapped files used by tasks on every CPU";
profile "x86-512" cpus 96;
window 40ms after 10ms;

param bytes = 8 MiB  [64 KiB..256 MiB]  "size of each file";
param in_threads = 0 [0..1]  "1: the threads of one process; 0: a process on each CPU";
param random = 0     [0..1]  "1: pages in a random order; 0: one after the other";
param writes = 0     [0..1]  "1: pages are written to; 0: they are read";
param own = 1        [0..1]  "1: each task has a file of its own; 0: all of them map one";

file all = bytes;

program use {
    for i in 0..pages(mem) {
        at = i;
        if random { at = rand(pages(mem)); }
        if writes { write(mem[at]); } else { read(mem[at]); }
        count;
    }
}

program work {
    start;
    loop {
        if own {
            f = memfd_create(bytes);
            mem = mmap(f, SHARED);
            use();
            munmap(mem);
            close(f);
        } else {
            mem = mmap(all, SHARED);
            use();
            munmap(mem);
        }
    }
}

process each 1 - in_threads per_cpu { work(); }
process one in_threads { threads per_cpu { work(); } }
