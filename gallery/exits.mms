// The gallery: processes with much memory end at the same time. One operation is a page of such a process.
summary "exits of big processes";
profile "x86-32" cpus 32;
window 8ms after 0ms;

param tasks = 20 [1..4096]   "processes";
param bytes = 128 MiB        "memory of each process";

process each tasks on id * (cpus / tasks) {
    mem = mmap(bytes);
    write(mem);
    start;
    count pages(mem);
}
