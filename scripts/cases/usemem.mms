// usemem of vm-scalability (anon-*): tasks write to or read anonymous memory, in order or at random, of
// their own, of one process, or of a parent that all of them copy (cow). One operation is a page.
summary "anonymous memory used by tasks on every CPU";
profile "x86-512" cpus 96;
window 40ms after 10ms;

param bytes = 8 MiB  [64 KiB..1 GiB]  "memory of each task";
param in_threads = 0 [0..1]  "1: the threads of one process share all of it; 0: a process on each CPU";
param random = 0     [0..1]  "1: pages in a random order; 0: one after the other";
param reads = 0      [0..1]  "1: pages are read; 0: they are written to";
param cow = 0        [0..1]  "1: each round is a child that writes to pages of its parent";

program use {
    for i in 0..pages(mem) {
        at = i;
        if random { at = rand(pages(mem)); }
        if reads { read(mem[at]); } else { write(mem[at]); }
        count;
    }
}

program rounds {
    start;
    loop {
        mem = mmap(bytes);
        use();
        munmap(mem);
    }
}

program copies {
    mem = mmap(bytes, POPULATE);
    write(mem);
    start;
    loop {
        child = fork { use(); }
        wait(child);
    }
}

process each (1 - in_threads) * (1 - cow) per_cpu { rounds(); }
process parent (1 - in_threads) * cow per_cpu { copies(); }
process one in_threads { threads per_cpu { rounds(); } }
