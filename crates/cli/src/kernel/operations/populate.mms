// Pages that the kernel fills within mmap. One operation is a page.
summary "populate, and unmap, of a page among 512";
process populate per_cpu {
    start;
    loop {
        mem = mmap(2 MiB, POPULATE);
        count(pages(mem));
        munmap(mem);
    }
}
