// stress-ng's mmap stressor (also mmapfixed, munmap): a mapping, whose pages are used, protected and unmapped
// page by page in a random order, and mapped again in place. One operation is a round.
summary "pages of a mapping that are mapped and unmapped one by one on every CPU";
profile "x86-512" cpus 96;
window 20ms after 5ms;

param bytes = 256 KiB  [64 KiB..64 MiB]  "size of the mapping";
param in_threads = 0 [0..1]  "1: the threads of one process; 0: a process on each CPU";

program work {
    start;
    loop {
        mem = mmap(bytes);
        write(mem);
        for i in 0..pages(mem) {
            at = rand(pages(mem));
            munmap(mem[at]);
            mmap(mem[at]);
            write(mem[at]);
        }
        mprotect(mem, READ);
        munmap(mem);
        count;
    }
}

process each 1 - in_threads per_cpu { work(); }
process one in_threads { threads per_cpu { work(); } }
