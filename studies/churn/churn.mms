// The program of the study `churn`: a process maps a page with MAP_POPULATE, gives it advice, uses it and unmaps it.
// The mix of advice is that of stress-ng's mremap stressor.
// Not reproduced: the maps and unmaps that fill the page caches of all CPUs before the start
// Not reproduced: the arm `numa`, which binds each page to a node at random with MPOL_MF_MOVE
// Not reproduced: the extra processes of --set beside, which lock, migrate and reclaim memory
summary "what does the LRU lock cost programs that populate and unmap single pages?";
profile "x86-512" cpus 512;

param processes = 16 [1..1024]  "processes on each CPU";
param bytes = 1 page            "memory of an operation";
param user = 315ns              "CPU time of an operation in user mode";

process churn processes per_cpu {
    image = mmap(4 pages, READ);
    read(image);
    start;
    loop {
        mem = mmap(bytes, POPULATE);
        choose {
            1: { try madvise(mem, NORMAL); }
            1: { try madvise(mem, RANDOM); }
            1: { try madvise(mem, SEQUENTIAL); }
            1: { try madvise(mem, WILLNEED); }
            1: { try madvise(mem, DONTFORK); }
            1: { try madvise(mem, DOFORK); }
            1: { try madvise(mem, MERGEABLE); }
            1: { try madvise(mem, UNMERGEABLE); }
            1: { try madvise(mem, HUGEPAGE); }
            1: { try madvise(mem, NOHUGEPAGE); }
            1: { try madvise(mem, DONTDUMP); }
            1: { try madvise(mem, DODUMP); }
            1: { try madvise(mem, COLD); }
            1: { try madvise(mem, PAGEOUT); }
            1: { try madvise(mem, POPULATE_READ); }
            1: { try madvise(mem, POPULATE_WRITE); }
        }
        try madvise(mem, MERGEABLE);
        try madvise(mem, POPULATE_READ);
        read(mem);
        write(mem);
        read(mem);
        compute(user);
        munmap(mem);
        count;
    }
}
