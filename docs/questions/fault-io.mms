// Threads read pages that are in swap, and one thread changes the address space again and again.
// A fault waits for its page. Which locks does it hold then, and who waits for it?
summary "who waits for a page fault that waits for its page?";
profile "x86-512" cpus 16;
window 40ms after 10ms live 2s;
swap 256 MiB;

param readers = 12 [1..4096]   "threads that read pages from swap, each in memory of its own";
param pages   = 256 pages      "memory of each reader";
param change  = 1 [0..3]       "what the other thread does: 0 nothing, 1 fork, 2 mprotect of memory that no other thread uses, 3 mmap and munmap";
param pause   = 200us          "time between two changes";

arm vma retry=vma;
arm hold retry=hold;

process app {
    own = mmap(pages, POPULATE);
    for i in 0..readers {
        thread {
            whole = mmap(pages + 1 page);
            mprotect(whole[pages(whole) - 1], NONE);    // so that it is a VMA of its own
            part = whole[0..pages(whole) - 1];
            write(part);
            madvise(part, DONTFORK);                    // a child has none of it
            start;
            loop {
                madvise(part, PAGEOUT);
                for at in 0..pages(part) {
                    read(part[at]);
                    count;              // the operation: a page that is read from swap
                }
            }
        }
    }
    start;
    loop {
        if change == 0 { sleep(1ms); continue; }
        sleep(pause);
        time {                          // how long a change takes
            if change == 1 { child = fork { } wait(child); }
            if change == 2 { mprotect(own, READ); mprotect(own, WRITE); }
            if change == 3 { more = mmap(pages); munmap(more); }
        }
    }
}
