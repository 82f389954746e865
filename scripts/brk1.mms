// will-it-scale's brk1: the heap grows and shrinks by a page. One operation is a call. There is no brk here: a
// mapping behind another one, which merges with it, and munmap come near.
summary "the heap grows and shrinks on every CPU";
profile "x86-512" cpus 96;
window 10ms after 5ms;

param in_threads = 0 [0..1]  "1: the threads of one process; 0: a process on each CPU";

program work {
    heap = mmap(2 pages);
    munmap(heap[1]);
    write(heap[0]);
    start;
    loop {
        mmap(heap[1]);
        count;
        munmap(heap[1]);
        count;
    }
}

process each 1 - in_threads per_cpu { work(); }
process one in_threads { threads per_cpu { work(); } }
