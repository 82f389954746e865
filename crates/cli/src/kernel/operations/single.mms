// The shortest mapping: one page.
summary "map, write and unmap one page";
process single per_cpu {
    start;
    loop {
        for i in 0..64 {
            mem = mmap(4 KiB);
            write(mem);
            munmap(mem);
            count;
        }
    }
}
