// The gallery: mmtests' pft with threads. Each thread writes to its part of one region, or to a region of its own.
// Nothing is unmapped. One operation is a page.
summary "first faults of the threads of one process";
profile "x86-32" cpus 32;
window 8ms after 4ms;

param bytes = 64 MiB         "memory of each thread";
param own = 0 [0..1]         "1: each thread maps a region of its own; 0: all have parts of one";
param tasks = 1 [1..4096]   "processes or threads, spread over nodes, cores first";

process one {
    all = mmap(bytes * tasks);
    threads tasks spread {
        part = all[id * bytes..(id + 1) * bytes];
        if own {
            // Neighbours would merge into one VMA: a page without memory separates them.
            part = mmap(bytes + 1 page);
            munmap(part[bytes..]);
            part = part[..bytes];
        }
        start;
        for i in 0..pages(part) {
            write(part[i]);
            count;
        }
    }
}
