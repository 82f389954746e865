// The gallery: each thread of a process gives its memory back, 2 MiB at a time. One operation is a page.
summary "MADV_DONTNEED by the threads of one process";
profile "x86-26" cpus 26;
window 6ms after 1ms;

param bytes = 256 MiB        "memory of each thread";
param chunk = 2 MiB          "memory of a call";
param tasks = 1 [1..4096]   "processes or threads: one on each core, node after node";

process one {
    all = mmap(bytes * tasks);
    threads tasks on cores {
        part = all[id * bytes..(id + 1) * bytes];
        write(part);
        start;
        for i in 0..bytes / chunk {
            madvise(part[i * chunk..(i + 1) * chunk], DONTNEED);
            count chunk / 1 page;
        }
    }
}
