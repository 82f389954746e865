// Pages that come from the zone and return there, where page caches are small. One operation is a
// page.
summary "populate, and unmap, of a page among 2048, with small page caches";
process bulk per_cpu {
    start;
    loop {
        mem = mmap(8 MiB, POPULATE);
        count(pages(mem));
        munmap(mem);
    }
}
