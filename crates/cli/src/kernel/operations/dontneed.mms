// A purge, and the faults after it. One operation is a page.
summary "MADV_DONTNEED of a page among 512, and the fault after it";
process dontneed per_cpu {
    mem = mmap(2 MiB);
    start;
    loop {
        for i in 0..pages(mem) {
            write(mem[i]);
            count;
        }
        madvise(mem, DONTNEED);
    }
}
