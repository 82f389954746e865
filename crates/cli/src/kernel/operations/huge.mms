// A huge page. One operation is its fault and its unmap.
summary "fault and unmap of a huge page";
process huge per_cpu {
    start;
    loop {
        for i in 0..8 {
            mem = mmap(4 MiB);
            madvise(mem, HUGEPAGE);
            write(mem);
            munmap(mem);
            count(2);
        }
    }
}
