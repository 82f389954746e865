// stress-ng's mmapfork stressor: children that map and use memory and exit. One operation is a child.
summary "children that map memory on every CPU";
profile "x86-512" cpus 96;
window 20ms after 5ms;

param bytes = 256 KiB [4 KiB..64 MiB]  "memory of a child";

process mmapfork per_cpu {
    start;
    loop {
        child = fork {
            mem = mmap(bytes, POPULATE);
            write(mem);
        }
        wait(child);
        count;
    }
}
