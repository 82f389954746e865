// The shortest operation in which the kernel takes the LRU lock twice: a page is populated, and unmapped.
summary "populate and unmap a page on every CPU";
process populate1 per_cpu {
    start;
    loop {
        mem = mmap(1 page, POPULATE);
        munmap(mem);
        count;
    }
}
