// Threads read pages of a file on the disk, and one thread forks again and again. On the CPU of each reader a task with
// priority computes for a time, and sleeps for as long. A reader whose page has come cannot run meanwhile: does it have a lock?
summary "who waits for a page fault that waits for its CPU?";
profile "x86-512" cpus 16;
window 100ms after 10ms;

param readers = 12 [1..4096]   "threads that read pages of the file, each in memory of its own and on a CPU of its own";
param pages   = 256 pages      "memory of each reader";
param pause   = 2ms            "time between two forks";
param burst   = 1ms            "time for which a task with priority computes, and then sleeps; 0: there is none";

file data = readers * pages on disk;

arm vma retry=vma;
arm hold retry=hold;

process app on 0 {
    for i in 0..readers {
        thread on 1 + i % (cpus - 1) {
            whole = mmap(pages + 1 page);
            mprotect(whole[pages(whole) - 1], NONE);    // so that it is a VMA of its own
            part = mmap(whole[0..pages(whole) - 1], data[i * pages..(i + 1) * pages], SHARED);
            madvise(part, RANDOM);                      // no readahead: each page is a read
            madvise(part, DONTFORK);                    // a child has none of it
            start;
            loop {
                madvise(part, DONTNEED);
                posix_fadvise(data[i * pages..(i + 1) * pages], DONTNEED);
                for at in 0..pages(part) {
                    read(part[at]);
                    count;              // the operation: a page that is read from the disk
                }
            }
        }
    }
    start;
    loop {
        sleep(pause);
        time { child = fork on 0 { } wait(child); }
    }
}

process urgent readers * min(burst / 1us, 1) on 1 + id % (cpus - 1) priority 5 {
    start;
    sleep(rand(2 * burst));             // not in step
    loop { compute(burst); sleep(burst); }
}
