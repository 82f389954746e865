// The gallery: doexec of DragonFly, static. A process on each CPU runs a small program again and again: a new address space
// with some pages, and the end of the old one. There is no exec here: each program is a process that its parent
// waits for. A static program of glibc that prints one line has 52 KiB of anonymous memory (Anonymous of
// /proc/self/smaps_rollup); its pages of files are left out.
summary "small programs, one after the other, on every CPU";
profile "x86-26" cpus 26;

param image   = 768 KiB  "memory that a program maps";
param touched = 13 pages "memory of it that the program uses";

process doexec per_cpu {
    start;
    loop {
        command = process {
            text = mmap(image);
            write(text[..min(touched, image)]);
        }
        wait(command);
        count;
    }
}
