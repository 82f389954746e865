// A mapping that grows and shrinks. One operation is both.
summary "mremap to twice the size and back, of 16 touched pages";
process move per_cpu {
    mem = mmap(64 KiB, POPULATE);
    start;
    loop {
        for i in 0..64 {
            mem = mremap(mem, 128 KiB);
            mem = mremap(mem, 64 KiB);
            count;
        }
    }
}
