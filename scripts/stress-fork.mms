// stress-ng's fork stressor: a batch of children that exit at once, and a wait for each.
summary "batches of short children on every CPU";
profile "x86-512" cpus 96;

param image    = 2 MiB      "memory of each parent";
param children = 1 [1..1024]  "children of a batch (stress-ng --fork-max)";

process parent per_cpu {
    mem = mmap(image, POPULATE);
    write(mem);
    start;
    loop {
        for i in 0..children { fork { } }
        wait();
        count children;
    }
}
