// stress-ng's mincore stressor and vm-scalability's mincore: the kernel says which pages are present. One
// operation is a call.
summary "mincore on every CPU";
profile "x86-512" cpus 96;
window 10ms after 5ms;

param bytes = 64 KiB [4 KiB..256 MiB]  "memory that is asked about";

process mincore per_cpu {
    mem = mmap(bytes);
    write(mem);
    start;
    loop {
        n = mincore(mem);
        count;
    }
}
