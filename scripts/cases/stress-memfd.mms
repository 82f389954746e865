// stress-ng's memfd stressor: files in memory are made, mapped, written to and closed. One operation is a
// file.
summary "files in memory that are made and mapped on every CPU";
profile "x86-512" cpus 96;
window 20ms after 5ms;

param bytes = 64 KiB [4 KiB..16 MiB]  "size of a file";

process memfd per_cpu {
    start;
    loop {
        f = memfd_create(bytes);
        mem = mmap(f, SHARED);
        write(mem);
        munmap(mem);
        close(f);
        count;
    }
}
