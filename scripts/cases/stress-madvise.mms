// stress-ng's madvise stressor: advice on random pages of a mapping, and their use. One operation is a call.
summary "madvise of random pages on every CPU";
profile "x86-512" cpus 96;
window 10ms after 5ms;

param pages_of_each = 256 [2..16384]  "pages of the mapping";
param in_threads = 0 [0..1]  "1: the threads of one process; 0: a process on each CPU";

program work {
    mem = mmap(pages_of_each * 1 page);
    write(mem);
    start;
    loop {
        at = rand(pages(mem));
        choose {
            4: { madvise(mem[at], DONTNEED); write(mem[at]); }
            1: { madvise(mem[at], FREE); write(mem[at]); }
            1: { madvise(mem[at], COLD); }
            1: { madvise(mem[at], WILLNEED); }
        }
        count;
    }
}

process each 1 - in_threads per_cpu { work(); }
process one in_threads { threads per_cpu { work(); } }
