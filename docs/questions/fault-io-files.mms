// As fault-io.mms, with pages of a file on the disk in place of pages in swap: threads read them, and one thread changes the
// address space again and again. The file is not in memory: a reader drops its part before it reads it again.
summary "who waits for a page fault that waits for a page of a file?";
profile "x86-512" cpus 16;
window 40ms after 10ms live 2s;

param readers = 12 [1..4096]   "threads that read pages of the file, each in memory of its own";
param pages   = 256 pages      "memory of each reader";
param change  = 1 [0..3]       "what the other thread does: 0 nothing, 1 fork, 2 mprotect of memory that no other thread uses, 3 mmap and munmap";
param pause   = 200us          "time between two changes";

file data = readers * pages on disk;

arm vma retry=vma;
arm hold retry=hold;

process app {
    own = mmap(pages, POPULATE);
    for i in 0..readers {
        thread {
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
        if change == 0 { sleep(1ms); continue; }
        sleep(pause);
        time {                          // how long a change takes
            if change == 1 { child = fork { } wait(child); }
            if change == 2 { mprotect(own, READ); mprotect(own, WRITE); }
            if change == 3 { more = mmap(pages); munmap(more); }
        }
    }
}
