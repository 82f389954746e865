// will-it-scale's fork1: fork, the child exits, wait. One operation is all of that.
summary "fork and exit on every CPU";
profile "x86-512" cpus 96;

param image = 128 KiB      "memory of each parent, as a small program has";

process fork1 per_cpu {
    mem = mmap(image, POPULATE);
    write(mem);
    start;
    loop {
        child = fork { }
        wait(child);
        count;
    }
}
