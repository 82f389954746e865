// A change of protection and back. One operation is a page.
summary "mprotect of a page among 512, to read-only and back";
process protect per_cpu {
    mem = mmap(2 MiB, POPULATE);
    start;
    loop {
        mprotect(mem, READ);
        mprotect(mem, WRITE);
        count(pages(mem));
    }
}
