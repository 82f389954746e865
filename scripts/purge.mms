// An allocator like jemalloc: threads use extents of their arenas, and purge what was freed a while ago.
summary "an allocator that purges freed memory, in one process with a thread on each CPU";
profile "x86-512" cpus 96;
window 10ms after 5ms;

param extents = 64 [1..65536]  "extents of each arena";
param extent  = 64 KiB         "size of an extent";
param think   = 5us            "time that a thread computes with an extent";
param lazy    = 1              "weight of MADV_FREE";
param eager   = 3              "weight of MADV_DONTNEED";

process server {
    threads per_cpu {
        arena = mmap(extent * extents);
        write(arena);
        start;
        loop {
            at = rand(extents) * extent;
            mine = arena[at .. at + extent];
            choose {
                eager: { madvise(mine, DONTNEED); }
                lazy:  { try madvise(mine, FREE); }
            }
            write(mine);
            compute(rand(think, think * 2));
            count;
        }
    }
}
