// UnixBench's execl: each copy replaces its program by the same program, again and again. It gets an empty address
// space, in which the files of the image are mapped as the kernel and the loader do. One operation is an exec.
summary "programs that replace themselves: who waits for i_mmap_rwsem of the libraries?";
profile "sapphirerapids" cpus 224;
window 60ms after 10ms live 2s;

param copies = 220 [1..4096]  "processes that replace their program all the time";
param rest   = 100us          "CPU time of an exec outside of memory management";
param data   = 4 [1..64]      "pages of each file that are written to, and as many of its text that are read";

arm trees imap=trees;
arm node imap=node;
arm cores-sixteen imap=cores-sixteen;
arm cores-four imap=cores-four;

file binary = 8 pages;
file loader = 52 pages;
file libc   = 512 pages;

// The whole file read-only, then its text and its data in their places, and relocations that are read-only in the end. The data
// begin a page earlier in the file, as those of real files do, so that they are never merged with the constants.
program segments {
    all = mmap(f, PRIVATE, READ);
    n = pages(all);
    mmap(all[n / 8..n / 2], f[n / 8..n / 2], PRIVATE, EXEC);
    mmap(all[n * 3 / 4..], f[n * 3 / 4 - 1..n - 1], PRIVATE);
    read(all[n / 8..n / 8 + data]);
    write(all[n - min(n / 4, data)..]);
    mprotect(all[n * 3 / 4..n * 7 / 8], READ);
}

process execl copies {
    start;
    loop {
        exec();
        f = binary;
        segments();
        f = loader;
        segments();
        f = libc;
        segments();
        compute(rest);
        count;
    }
}
