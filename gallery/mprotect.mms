// The gallery: a shared mapping of a file is made read-only and writable again. One operation is a page.
summary "mprotect of written shared pages, on one CPU";
profile "x86-2" cpus 2;
window 10ms after 5ms;

param bytes = 2 MiB         "size of the file";
param again = 1 [0..1]       "1: each page is written again after it is writable; 0: nothing is";

process one {
    f = memfd_create(bytes);
    mem = mmap(f, SHARED);
    write(mem);
    start;
    loop {
        mprotect(mem, READ);
        mprotect(mem, WRITE);
        if again { write(mem); }
        count pages(mem);
    }
}
