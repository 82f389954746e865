// stress-ng's rmap stressor: processes map overlapping parts of one file and write to them. One operation is
// a page.
summary "one file that the processes of all CPUs map and write to";
profile "x86-512" cpus 96;
window 20ms after 5ms;

param bytes = 256 KiB [64 KiB..16 MiB]  "size of the file";

file all = bytes;

process rmap per_cpu {
    start;
    loop {
        mem = mmap(all, SHARED);
        for i in 0..pages(mem) { write(mem[rand(pages(mem))]); count; }
        munmap(mem);
    }
}
