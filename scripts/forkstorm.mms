// On each CPU a process forks again and again. Each child writes to some of the copied pages.
summary "which lock limits fork and exit on every CPU?";
profile "x86-512" cpus 96;

param pages  = 64 pages  "memory of each parent";
param writes = 8 pages   "memory that each child writes to, at most `pages`";

arm lazy lru=lazy;

process storm per_cpu {
    mem = mmap(pages, POPULATE);
    write(mem);
    start;                          // all processes begin together
    loop {                          // until the end of the run
        child = fork {
            write(mem[..min(writes, pages)]);
        }
        wait(child);
        count;                      // the operation: a fork and the end of the child
    }
    check(mem);                     // no child changed it
}
