// UnixBench's execl: each copy replaces its program by the same program, again and again. Here a copy maps
// the files of the image as the kernel and the loader do, uses them, and unmaps all. One operation is an exec.
summary "programs that replace themselves: who waits for i_mmap_rwsem of the libraries?";
profile "sapphirerapids" cpus 224;
window 60ms after 10ms live 2s;

param copies = 220 [1..4096]  "processes that replace their program all the time";
param rest   = 100us          "CPU time of an exec outside of these locks";
param data   = 4 [1..64]      "pages of each file that are written to, and as many of its text that are read";

arm trees imap=trees;
arm node imap=node;
arm cores-sixteen imap=cores-sixteen;
arm cores-four imap=cores-four;

file binary = 8 pages;
file loader = 52 pages;
file libc   = 512 pages;

// The mappings of a file with text, constants and data. Scripts have no PROT_EXEC: the text is writable
// in its place, so that it is a VMA of its own; the data begin a page earlier in the file, as the pages of
// real data do, so that they are never merged with the constants.
program segments {
    n = pages(all);
    mmap(all[n / 8..n / 2], f[n / 8..n / 2], PRIVATE);
    mmap(all[n * 3 / 4..], f[n * 3 / 4 - 1..n - 1], PRIVATE);
    read(all[n / 8..n / 8 + data]);
    write(all[n - min(n / 4, data)..]);
    mprotect(all[n * 3 / 4..n * 7 / 8], READ);      // relocations are read-only after that
}

process execl copies {
    start;
    loop {
        f = binary;
        all = mmap(f, PRIVATE, READ);
        segments();
        one = all;
        f = loader;
        all = mmap(f, PRIVATE, READ);
        segments();
        two = all;
        f = libc;
        all = mmap(f, PRIVATE, READ);
        segments();
        compute(rest);
        munmap(one);
        munmap(two);
        munmap(all);
        count;
    }
}
