// stress-ng's vm stressor: map memory, write to all of it, read it back, and drop or unmap it.
summary "memory that is mapped, written, read back and dropped on every CPU";
profile "x86-512" cpus 96;
window 10ms after 5ms;

param bytes = 1 MiB  "memory of each process";
param keep  = 1      "weight of dropping the pages and using the mapping again";
param unmap = 3      "weight of unmapping, as stress-ng does without --vm-keep";

process vm per_cpu {
    start;
    mem = mmap(bytes);
    loop {
        for i in 0..pages(mem) { write(mem[i]); }
        check(mem);
        choose {
            keep:  { madvise(mem, DONTNEED); }
            unmap: { munmap(mem); mem = mmap(bytes); }
        }
        count;
    }
}
