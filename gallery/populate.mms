// The gallery: memory of one process is made present, by touch or by MADV_POPULATE. One operation is a page.
summary "touch against populate, on one CPU";
profile "x86-16" cpus 16;
window 10ms after 2ms;

param bytes = 1 GiB          "memory, which is not unmapped";
param chunk = 2 MiB          "memory of a call";
param how = 0 [0..3]         "0: write; 1: read; 2: MADV_POPULATE_WRITE; 3: MADV_POPULATE_READ";
param of_file = 0 [0..1]        "1: a private mapping of a file whose pages are present; 0: anonymous memory";

process one {
    mem = mmap(bytes);
    if of_file {
        f = memfd_create(256 MiB);
        pages_of = mmap(f, SHARED);
        write(pages_of);
        munmap(pages_of);
        mem = mmap(f, PRIVATE);
    }
    start;
    for i in 0..size(mem) / chunk {
        part = mem[i * chunk..(i + 1) * chunk];
        if how == 0 { write(part); }
        if how == 1 { read(part); }
        if how == 2 { madvise(part, POPULATE_WRITE); }
        if how == 3 { madvise(part, POPULATE_READ); }
        count size(part) / 1 page;
    }
}
