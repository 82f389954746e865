// stress-ng's mprotect stressor: rights of random pages of a mapping change, and pages are used. One
// operation is a call.
summary "mprotect of random pages on every CPU";
profile "x86-512" cpus 96;
window 10ms after 5ms;

param pages_of_each = 32 [2..4096]  "pages of the mapping";
param in_threads = 0 [0..1]  "1: the threads of one process; 0: a process on each CPU";

program work {
    mem = mmap(pages_of_each * 1 page);
    write(mem);
    start;
    loop {
        at = rand(pages(mem));
        mprotect(mem[at], READ);
        read(mem[at]);
        count;
        mprotect(mem[at], WRITE);
        write(mem[at]);
        count;
    }
}

process each 1 - in_threads per_cpu { work(); }
process one in_threads { threads per_cpu { work(); } }
