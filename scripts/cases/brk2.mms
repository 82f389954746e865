// will-it-scale's brk2: the heap grows by two areas with different rights and shrinks again, so that areas
// are split and merged. One operation is a round.
summary "the heap grows by areas that split and merge, on every CPU";
profile "x86-512" cpus 96;
window 10ms after 5ms;

param in_threads = 0 [0..1]  "1: the threads of one process; 0: a process on each CPU";

program work {
    heap = mmap(3 pages);
    munmap(heap[1..3]);
    write(heap[0]);
    start;
    loop {
        mmap(heap[1]);
        mmap(heap[2]);
        mprotect(heap[1], READ);
        mprotect(heap[1], WRITE);
        munmap(heap[1..3]);
        count;
    }
}

process each 1 - in_threads per_cpu { work(); }
process one in_threads { threads per_cpu { work(); } }
