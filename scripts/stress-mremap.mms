// The halves and doublings of stress-ng's mremap stressor, which moves and replaces mappings too: a mapping shrinks
// by halves and grows again, and its pages are used.
summary "mremap on every CPU";
profile "x86-512" cpus 96;
window 10ms after 5ms;

param bytes = 64 KiB   [8KiB..64MiB]  "largest size of the mapping";
param least = 4 KiB    [4KiB..64MiB]  "smallest size of the mapping";

process mremap per_cpu {
    start;
    loop {
        mem = mmap(bytes, POPULATE);
        now_bytes = bytes;
        while now_bytes / 2 >= least {
            now_bytes = now_bytes / 2;
            mem = mremap(mem, now_bytes);
            write(mem[0]);
        }
        while now_bytes < bytes {
            now_bytes = now_bytes * 2;
            mem = mremap(mem, now_bytes);
            write(mem[now_bytes / 2..now_bytes]);
        }
        read(mem);
        munmap(mem);
        count;
    }
}
