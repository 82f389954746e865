// First writes to pages of a mapping, and its unmap. One operation is a page.
summary "a write fault on anonymous memory, and the unmap of the page among 512";
process touch per_cpu {
    start;
    loop {
        mem = mmap(2 MiB);
        for i in 0..pages(mem) {
            write(mem[i]);
            count;
        }
        munmap(mem);
    }
}
