// stress-ng's tlb-shootdown stressor: one process with a thread on each CPU, which change the rights of
// shared pages that all of them use. One operation is a call.
summary "mprotect of pages that the threads of all CPUs use";
profile "x86-512" cpus 96;
window 10ms after 5ms;

param pages_of_all = 512 [2..16384]  "pages of the mapping";

process one {
    mem = mmap(pages_of_all * 1 page);
    write(mem);
    threads per_cpu {
        start;
        loop {
            at = rand(pages(mem));
            try mprotect(mem[at], READ);
            for i in 0..8 { read(mem[rand(pages(mem))]); }
            try mprotect(mem[at], WRITE);
            count;
        }
    }
}
